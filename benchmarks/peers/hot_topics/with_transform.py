"""``transformWithStateInPandas`` by hand: a group per topic, whose heap is a value of its state, pickled."""

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
    """Emits how many tweets of a topic are held whenever they are too many."""

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
    """A result is how many tweets of its topic are held."""

    def query(spark: SparkSession) -> DataFrame:
        topics = tweets(spark, task).groupBy("topic")
        detector = Detector(threshold(task))
        return topics.transformWithStateInPandas(detector, "result long", outputMode="Append", timeMode="None")

    return run_query(task, query, rocksdb=True)
