"""``transformWithStateInPandas``: a group per user, with its count as a value state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import numbers, run_query, scattered

__all__ = ("measure",)


class Count(StatefulProcessor):
    """Emits a result for each event."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "count long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        kept = self.count.get()
        total = kept[0] if kept else 0
        for frame in rows:
            yield pd.DataFrame({"result": range(total + 1, total + 1 + len(frame))})
            total += len(frame)
        self.count.update((total,))

    def close(self) -> None:
        pass


def measure(task: Task) -> Outcome:
    """Run the query on columns."""

    def query(spark: SparkSession) -> DataFrame:
        events = numbers(spark, task.records).selectExpr(f"{scattered(task.keys)} AS user")
        users = events.groupBy("user")
        return users.transformWithStateInPandas(Count(), "result long", outputMode="Append", timeMode="None")

    return run_query(task, query, rocksdb=True)
