"""Stateless functions run in the reading tasks: from generators and from DataFrames, streaming and batch."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, RuntimeExecutionMode, Trigger
from dsv2.errors import UserFunctionError
from dsv2.functions import MapFunction
from dsv2.sinks import CollectSink
from dsv2.sources import DataGeneratorSource
from tests.durations import ms

MODES = [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH]


def environment(spark: SparkSession, mode: RuntimeExecutionMode) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_execution_mode(mode)
    env.set_parallelism(2)
    return env


def run(env: ExecutionEnvironment, checkpoint: str) -> Any:
    streaming = env.execution_mode is RuntimeExecutionMode.STREAMING
    return env.execute(checkpoint_location=checkpoint if streaming else None)


@pytest.mark.parametrize("mode", MODES)
def test_from_a_generator(spark: SparkSession, mode: RuntimeExecutionMode, checkpoint: str) -> None:
    env, direct, keyed = environment(spark, mode), CollectSink[int](), CollectSink[int]()
    numbers = env.from_source(DataGeneratorSource(int, count=100, records_per_batch=30))
    sixes = numbers.map(lambda n: n * 2).with_uid("even").filter(lambda n: n % 3 == 0).with_uid("sixes")
    sixes.flat_map(lambda n: [n, n + 1]).with_uid("pairs").to_sink(direct)
    sixes.key_by(lambda n: n % 5).process(MapFunction(int)).with_uid("keyed").to_sink(keyed)
    progress = run(env, checkpoint).progress.operators
    assert sorted(direct.results) == sorted(n + one for n in range(0, 200, 6) for one in (0, 1))
    assert sorted(keyed.results) == list(range(0, 200, 6))
    counts = {uid: (operator.records_in, operator.records_out) for uid, operator in progress.items()}
    functions = {"even": (100, 100), "sixes": (100, 34), "pairs": (34, 68), "keyed": (34, 34)}
    assert {uid: counts[uid] for uid in functions} == functions


@pytest.mark.parametrize("mode", MODES)
def test_from_a_dataframe_in_order(spark: SparkSession, mode: RuntimeExecutionMode, checkpoint: str) -> None:
    env, sink = environment(spark, mode), CollectSink[tuple[int, int]]()
    env.set_parallelism(1)
    rows = env.from_dataframe(spark.range(0, 40, 1, 1), dict, records_per_batch=15)
    many = rows.flat_map(lambda row: [(row["id"], part) for part in range(3_000)])  # more than a frame in a few rows
    many.filter(lambda pair: pair[1] % 500 == 0).to_sink(sink)
    run(env, checkpoint)
    assert sink.results == [(n, part) for n in range(40) for part in range(0, 3_000, 500)]


@pytest.mark.parametrize("mode", MODES)
def test_failure_names_the_function_and_the_record(
    spark: SparkSession, mode: RuntimeExecutionMode, checkpoint: str
) -> None:
    env = environment(spark, mode)
    env.from_source(DataGeneratorSource(int, count=9)).map(lambda n: 1 // (n - 4)).with_uid("inverse").to_sink(
        CollectSink()
    )
    with pytest.raises(UserFunctionError) as raised:
        run(env, checkpoint)
    assert (raised.value.operator, raised.value.record) == ("Map (uid 'inverse')", "4")


def test_job_without_levels_ends_with_its_source(spark: SparkSession, checkpoint: str) -> None:
    env, sink = environment(spark, RuntimeExecutionMode.STREAMING), CollectSink[str]()
    env.from_source(DataGeneratorSource(int, count=5, records_per_batch=2)).map(str).to_sink(sink)
    job = env.execute_async(checkpoint_location=checkpoint, trigger=Trigger.processing_time(ms(100)))
    assert job.await_termination(timedelta(seconds=60))
    assert sorted(sink.results) == ["0", "1", "2", "3", "4"]


def test_dataframe_without_levels_ends(spark: SparkSession, checkpoint: str) -> None:
    env, sink = environment(spark, RuntimeExecutionMode.STREAMING), CollectSink[Any]()
    env.from_dataframe(spark.range(0, 5, 1, 2), dict, records_per_batch=2).to_sink(sink)
    job = env.execute_async(checkpoint_location=checkpoint, trigger=Trigger.processing_time(ms(100)))
    assert job.await_termination(timedelta(seconds=60))
    assert sorted(row["id"] for row in sink.results) == [0, 1, 2, 3, 4]
