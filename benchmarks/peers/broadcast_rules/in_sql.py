"""Spark SQL: each micro-batch is joined with a static table of rules, which are not a stream."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from benchmarks.jobs.broadcast_rules import CATEGORIES, rule
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import numbers, run_query, scattered

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run a stateless query."""

    def query(spark: SparkSession) -> DataFrame:
        rules = spark.createDataFrame([rule(index) for index in range(CATEGORIES)])
        events = numbers(spark, task.records).selectExpr(f"{scattered(task.keys)} AS user", "value % 100 AS result")
        categories = events.withColumn("category", F.col("user") % CATEGORIES)
        return categories.join(F.broadcast(rules), "category").where("result >= limit").select("user", "result")

    return run_query(task, query)
