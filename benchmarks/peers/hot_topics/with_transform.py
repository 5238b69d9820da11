"""``transformWithStateInPandas``: a group per topic, with its pickled heap as a value state."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.jobs.hot_topics import threshold
from benchmarks.peers.hot_topics.in_pandas import held
from benchmarks.peers.hot_topics.tweets_in_sql import tweets
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import run_query

__all__ = ("measure",)


class Detector(StatefulProcessor):
    """Emits the size of a topic's heap whenever it exceeds the threshold."""

    def __init__(self, threshold: int) -> None:
        self.threshold = threshold

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.heap = handle.getValueState("heap", "heap binary")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        kept = self.heap.get()
        heap = pickle.loads(kept[0]) if kept else []  # noqa: S301 - our own bytes
        hot = [number for frame in rows for number in held(heap, frame, self.threshold)]
        self.heap.update((pickle.dumps(heap),))
        yield pd.DataFrame({"result": hot}, dtype="int64")

    def close(self) -> None:
        pass


def measure(task: Task) -> Outcome:
    """Run the query. A result is the size of a topic's heap."""

    def query(spark: SparkSession) -> DataFrame:
        topics = tweets(spark, task).groupBy("topic")
        detector = Detector(threshold(task))
        return topics.transformWithStateInPandas(detector, "result long", outputMode="Append", timeMode="None")

    return run_query(task, query, rocksdb=True)
