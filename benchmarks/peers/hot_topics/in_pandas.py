"""``applyInPandasWithState``: a group per topic, with its pickled heap as state.

(Spark 4.3 fails with a heap in an array column, which would also be slower.)
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from heapq import heappop, heappush

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState

from benchmarks.jobs.hot_topics import WINDOW, threshold
from benchmarks.peers.hot_topics.tweets_in_sql import tweets
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import run_query

__all__ = ("held", "measure")


def held(heap: list[int], tweets: pd.DataFrame, threshold: int) -> list[int]:
    """Add the tweets of one topic to its heap. Returns the size of the heap whenever it exceeds the threshold."""
    hot = []
    for posting_time, newest in zip(tweets["posting_time"].tolist(), tweets["newest"].tolist(), strict=True):
        oldest_kept = newest - WINDOW
        while heap and heap[0] < oldest_kept:
            heappop(heap)
        heappush(heap, posting_time)
        if len(heap) > threshold:
            hot.append(len(heap))
    return hot


def measure(task: Task) -> Outcome:
    """Run the query. A result is the size of a topic's heap."""
    limit = threshold(task)

    def detect(topic: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        heap = pickle.loads(state.get[0]) if state.exists else []  # noqa: S301 - our own bytes
        hot = [number for frame in frames for number in held(heap, frame, limit)]
        state.update((pickle.dumps(heap),))
        if hot:
            yield pd.DataFrame({"result": hot})

    def query(spark: SparkSession) -> DataFrame:
        topics = tweets(spark, task).groupBy("topic")
        return topics.applyInPandasWithState(detect, "result long", "heap binary", "append", "NoTimeout")

    return run_query(task, query)
