"""Spark SQL: a stream-stream join with watermarks, entirely in the JVM, on columns."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from benchmarks.jobs.interval_join import APART, BEFORE, OFFERS, ORDERS
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import numbers, run_query, scattered

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the query. Both sides read the same numbers in a micro-batch."""

    def query(spark: SparkSession) -> DataFrame:
        def side(name: str, multiplier: int) -> DataFrame:
            product = f"{scattered(task.keys, multiplier)} AS {name}_product"
            time = f"timestamp_millis((value + 1) * {APART}) AS {name}_time"
            rows = numbers(spark, task.records // 2).selectExpr(product, time)
            return rows.withWatermark(f"{name}_time", "0 seconds")

        matches = (
            f"offer_product = order_product AND offer_time <= order_time "
            f"AND offer_time >= order_time - interval {BEFORE} milliseconds"
        )
        pairs = side("offer", OFFERS).join(side("order", ORDERS), expr(matches))
        return pairs.selectExpr("unix_millis(order_time) - unix_millis(offer_time) AS result")

    return run_query(task, query)
