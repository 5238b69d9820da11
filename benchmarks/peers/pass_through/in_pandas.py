"""``mapInPandas``: rows are converted to tuples, passed through the function, and converted back to columns."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from benchmarks.jobs.pass_through import passed
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import numbers, run_query, scattered

__all__ = ("measure",)

_COLUMNS = ["user", "time", "result"]


def through(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Apply the function to the rows of each frame."""
    for frame in frames:
        events = zip(*(frame[column].tolist() for column in _COLUMNS), strict=True)
        yield pd.DataFrame([passed(event) for event in events], columns=_COLUMNS)


def measure(task: Task) -> Outcome:
    """Run a stateless query."""

    def query(spark: SparkSession) -> DataFrame:
        columns = f"{scattered(task.keys)} AS user", "value AS time", "value % 100 AS result"
        events = numbers(spark, task.records).selectExpr(*columns)
        return events.mapInPandas(through, "user long, time long, result long")

    return run_query(task, query)
