"""Spark SQL: the columns are passed from source to sink in the JVM, without a Python function."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import numbers, run_query, scattered

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run a stateless query."""

    def query(spark: SparkSession) -> DataFrame:
        columns = f"{scattered(task.keys)} AS user", "value AS time", "value % 100 AS result"
        return numbers(spark, task.records).selectExpr(*columns)

    return run_query(task, query)
