"""What contestants on Spark share: a session, endless numbers, and a query run for so many micro-batches."""

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
from runtime_spark.query import StreamingJob

__all__ = ("numbers", "run_dsv2", "run_query", "scattered")

PARTITIONS = 2
"""Of shuffles, in ``local[2]``."""
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def numbers(spark: SparkSession, records: int, partitions: int = PARTITIONS) -> DataFrame:
    """Rows with ``value`` from 0 on, ``records`` in a micro-batch."""
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", records)
    return source.option("numPartitions", partitions).load().select("value")


def scattered(keys: int, multiplier: int = 2_654_435_769) -> str:
    """The key of the number ``value`` in SQL, as ``benchmarks.jobs.events`` makes it."""
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
    """Run what ``query`` makes, whose column ``result`` is summed up, for the micro-batches of ``task``.

    ``later``: micro-batches that are run in addition, because results of the others come so much later; ``until``
    holds for those results that count. ``rocksdb``: state is kept there, which some operators insist on.
    """
    told: dict[int, Row] = {}
    enough = threading.Event()
    last = task.warm_up + task.batches + later

    def count(batch: DataFrame, batch_id: int) -> None:
        totals = batch.where(until).agg(F.count("result").alias("number"), F.sum("result").alias("sum"))
        told[batch_id] = totals.collect()[0]
        if batch_id == last:  # the times of those before are known then
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
    rows = [row for batch, row in told.items() if batch < last]
    versions = {package: version(package) for package in ("pyspark", "pandas", "pyarrow")}
    return Outcome(seconds, sum(row["number"] for row in rows), sum(row["sum"] or 0 for row in rows), versions)


def run_dsv2(build: Callable[[ExecutionEnvironment], list[tuple[int, int]]], task: Task) -> Outcome:
    """Run the pipeline that ``build`` makes; its sink adds the number and the sum of results to the list it returns.

    A stage has no more tasks than there are cores: subtasks share them.
    """
    with spark_session("benchmark") as spark, checkpoint() as folder:
        env = ExecutionEnvironment.get_instance(SparkRuntime(spark, partitions=min(task.parallelism, PARTITIONS)))
        env.set_parallelism(task.parallelism)
        told = build(env)
        job = env.execute_async("benchmark", checkpoint_location=folder)
        assert isinstance(job, StreamingJob)
        job.result()
        seconds = batch_seconds(job.query, task.warm_up, task.batches)
    versions = {package: version(package) for package in ("dsv2", "pyspark", "pandas", "pyarrow")}
    return Outcome(seconds, sum(number for number, _ in told), sum(total for _, total in told), versions)
