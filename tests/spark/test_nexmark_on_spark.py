"""Queries of Nexmark on Spark, compared with DuckDB. They share one job, which runs in several micro-batches."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import CollectSink, ExecutionEnvironment
from examples.nexmark.queries import STREAMS
from examples.nexmark.source import Nexmark
from runtime_spark import SparkRuntime
from tests.oracles.nexmark import expected_rows

EVENTS, RATE = 2_000, 20
SOME = ["q3", "q5", "q9"]


@pytest.mark.parametrize(
    "queries",
    [SOME, pytest.param(sorted(STREAMS.keys() - set(SOME)), marks=pytest.mark.nightly)],
    ids=["some", "others"],
)
def test_rows_are_those_of_sql(queries: list[str], spark: SparkSession, tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark))
    env.set_parallelism(2)
    nexmark = Nexmark(env, EVENTS, events_per_second=RATE, splits=2, events_per_batch=EVENTS // 2)
    sinks = {query: CollectSink[Any]() for query in queries}
    for query, sink in sinks.items():
        STREAMS[query](nexmark).to_sink(sink)
    env.execute(checkpoint_location=str(tmp_path))
    for query, sink in sinks.items():
        expected = Counter(expected_rows(query, EVENTS, RATE))
        assert expected, query
        assert Counter(map(tuple, sink.results)) == expected, query
