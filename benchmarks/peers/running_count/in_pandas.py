"""``applyInPandasWithState``: a group per user, with its count as state."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState

from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import numbers, run_query, scattered

__all__ = ("measure",)


def count(user: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Emit a result for each event."""
    total = state.get[0] if state.exists else 0
    for frame in frames:
        yield pd.DataFrame({"result": range(total + 1, total + 1 + len(frame))})
        total += len(frame)
    state.update((total,))


def measure(task: Task) -> Outcome:
    """Run the query on columns."""

    def query(spark: SparkSession) -> DataFrame:
        events = numbers(spark, task.records).selectExpr(f"{scattered(task.keys)} AS user")
        return events.groupBy("user").applyInPandasWithState(count, "result long", "count long", "append", "NoTimeout")

    return run_query(task, query)
