"""Spark SQL: ``withWatermark``, ``groupBy(window, user)`` and ``sum``, entirely in the JVM, on columns."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from benchmarks.jobs.windows import size
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import numbers, run_query, scattered

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the query. Spark closes windows one micro-batch later, so additional micro-batches are run."""

    def query(spark: SparkSession) -> DataFrame:
        user, value = f"{scattered(task.keys)} AS user", "value % 100 AS amount"
        events = numbers(spark, task.records).selectExpr(user, value, "timestamp_millis(value) AS time")
        windows = F.window("time", f"{size(task)} milliseconds")
        sums = events.withWatermark("time", "0 seconds").groupBy(windows, "user").agg(F.sum("amount").alias("result"))
        return sums.selectExpr("result", "unix_millis(window.start) AS start")

    return run_query(task, query, later=2, until=f"start < {task.total}")
