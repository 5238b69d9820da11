"""Code shared by the contestants on Spark: a source of numbers, and queries run for a number of micro-batches."""

from __future__ import annotations

import threading
from collections.abc import Callable
from importlib.metadata import version

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from benchmarks.common.measure import batch_seconds, checkpoint, spark_session
from benchmarks.peers.protocol import Outcome, Task
from dsv2 import ExecutionEnvironment
from runtime_spark import SparkRuntime
from runtime_spark.job.query import StreamingJob

__all__ = ("numbers", "run_on_spark", "run_query", "scattered")

PARTITIONS = 2
"""The number of shuffle partitions, in ``local[2]``."""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def numbers(spark: SparkSession, records: int, partitions: int = PARTITIONS) -> DataFrame:
    """A stream of rows with ``value`` from 0 on, ``records`` per micro-batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", records)
    return source.option("numPartitions", partitions).load().select("value")


def scattered(keys: int, multiplier: int = 2_654_435_769) -> str:
    """The SQL expression for the key of the number ``value``, as in ``benchmarks.jobs.events``."""
    return f"((value * {multiplier}) & {0xFFFF_FFFF}) * {keys} >> 32"


def run_query(
    task: Task,
    query: Callable[[SparkSession], DataFrame],
    *,
    mode: str = "append",
    later: int = 0,
    until: str = "true",
    rocksdb: bool = False,
) -> Outcome:
    """Run a query for the micro-batches of ``task``, and add up its column ``result``.

    Args:
        task: The task.
        query: Creates the query.
        mode: The output mode.
        later: The number of additional micro-batches, after which all results have been emitted.
        until: A condition for the results that count.
        rocksdb: Whether to keep state in RocksDB, which some operators require.
    """
    totals_by_batch: dict[int, Row] = {}
    enough = threading.Event()
    last = task.warm_up + task.batches + later

    def count(batch: DataFrame, batch_id: int) -> None:
        totals = batch.where(until).agg(F.count("result").alias("number"), F.sum("result").alias("sum"))
        totals_by_batch[batch_id] = totals.collect()[0]
        if batch_id == last:  # the times of all earlier micro-batches are available
            enough.set()

    with spark_session("benchmark") as spark, checkpoint() as folder:
        if rocksdb:
            spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        writer = query(spark).writeStream.outputMode(mode).option("checkpointLocation", folder).foreachBatch(count)
        running = writer.trigger(processingTime="0 seconds").start()
        while not enough.wait(0.05) and running.isActive:
            pass
        seconds = batch_seconds(running, task.warm_up, task.batches)
        running.stop()
        failure = running.exception()
        if failure is not None and not enough.is_set():
            raise failure
    rows = [row for batch, row in totals_by_batch.items() if batch < last]
    versions = {package: version(package) for package in ("pyspark", "pandas", "pyarrow")}
    return Outcome(seconds, sum(row["number"] for row in rows), sum(row["sum"] or 0 for row in rows), versions)


def run_on_spark(build: Callable[[ExecutionEnvironment], list[tuple[int, int]]], task: Task) -> Outcome:
    """Run a pipeline. ``build`` returns a list to which its sink appends the number and the sum of results.

    A stage has at most as many tasks as there are cores, and subtasks share them.
    """
    with spark_session("benchmark") as spark, checkpoint() as folder:
        env = ExecutionEnvironment.get_instance(SparkRuntime(spark, partitions=min(task.parallelism, PARTITIONS)))
        env.set_parallelism(task.parallelism)
        totals = build(env)
        job = env.execute_async("benchmark", checkpoint_location=folder)
        assert isinstance(job, StreamingJob)
        job.result()
        seconds = batch_seconds(job.query, task.warm_up, task.batches)
    versions = {package: version(package) for package in ("dsv2", "pyspark", "pandas", "pyarrow")}
    return Outcome(seconds, sum(number for number, _ in totals), sum(total for _, total in totals), versions)
