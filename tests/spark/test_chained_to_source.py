"""Stateless functions run in the reading tasks: many records for each row, and jobs without any other task."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import RuntimeExecutionMode, Trigger
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from tests.durations import LONG, ms
from tests.spark.programs import environment


@pytest.mark.parametrize("mode", RuntimeExecutionMode)
def test_from_a_dataframe_in_order(spark: SparkSession, mode: RuntimeExecutionMode, checkpoint: str) -> None:
    env, sink = environment(spark, mode=mode), CollectSink[tuple[int, int]]()
    rows = env.from_dataframe(spark.range(0, 40, 1, 1), dict, records_per_batch=15)
    many = rows.flat_map(lambda row: [(row["id"], part) for part in range(3_000)])  # more than a frame in a few rows
    many.filter(lambda pair: pair[1] % 500 == 0).to_sink(sink)
    env.execute(checkpoint_location=checkpoint if mode is RuntimeExecutionMode.STREAMING else None)
    assert sink.results == [(n, part) for n in range(40) for part in range(0, 3_000, 500)]


def test_job_without_levels_ends_with_its_sources(spark: SparkSession, checkpoint: str) -> None:
    env, texts, rows = environment(spark, 2), CollectSink[str](), CollectSink[Any]()
    env.from_source(DataGeneratorSource(int, count=5, records_per_batch=2)).map(str).to_sink(texts)
    env.from_dataframe(spark.range(0, 7, 1, 2), dict, records_per_batch=2).to_sink(rows)
    job = env.execute_async(checkpoint_location=checkpoint, trigger=Trigger.processing_time(ms(100)))
    assert job.await_termination(timedelta(seconds=LONG))
    assert sorted(texts.results) == ["0", "1", "2", "3", "4"]
    assert sorted(row["id"] for row in rows.results) == [*range(7)]
