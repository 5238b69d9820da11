"""Bytewax, one worker: tweets carry the newest posting time, and heaps are in keyed state.

Bytewax has no custom watermarks. A mapping step processes all tweets in order and attaches the value that the watermark
would have. ``stateful_batch`` receives all available tweets of a topic in one call; the other operators are built on it
and call a function for each record. Recovery is disabled, so state is not written.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import heappop, heappush

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulBatchLogic

from benchmarks.jobs.hot_topics import WINDOW, Tweets, threshold
from benchmarks.peers.bytewax_flow import Generated, Tally, run
from benchmarks.peers.protocol import Outcome, Task
from examples.tweets import Tweet

__all__ = ("measure",)

Timed = tuple[int, int]
"""The posting time of a tweet, and the newest one of the tweets before it."""


class Detector(StatefulBatchLogic[Timed, int, list[int]]):
    """Keeps the heap of one topic, and emits its size whenever it exceeds the threshold."""

    def __init__(self, threshold: int, heap: list[int] | None) -> None:
        self.threshold = threshold
        self.heap: list[int] = heap or []

    def on_batch(self, values: list[Timed]) -> tuple[Iterable[int], bool]:
        heap, hot = self.heap, []
        for posting_time, newest in values:
            oldest_kept = newest - WINDOW
            while heap and heap[0] < oldest_kept:
                heappop(heap)
            heappush(heap, posting_time)
            if len(heap) > self.threshold:
                hot.append(len(heap))
        return hot, StatefulBatchLogic.RETAIN

    def notify_at(self) -> datetime | None:
        return None

    def snapshot(self) -> list[int]:
        return self.heap


class Extractor:
    """Keys tweets by topic, and attaches the newest posting time before each tweet."""

    def __init__(self) -> None:
        self.newest = -1

    def __call__(self, tweets: list[Tweet]) -> list[tuple[str, Timed]]:
        newest, keyed = self.newest, []
        for topic, posting_time in tweets:
            keyed.append((topic, (posting_time, newest)))
            if posting_time > newest:
                newest = posting_time
        self.newest = newest
        return keyed


def measure(task: Task) -> Outcome:
    """Run the dataflow."""
    limit, source, tally = threshold(task), Generated(task, Tweets(task.keys)), Tally()
    flow = Dataflow("hot_topics")
    keyed = op.flat_map_batch("extractor", op.input("tweets", flow, source), Extractor())
    hot = op.stateful_batch("detector", keyed, lambda heap: Detector(limit, heap))
    op.output("hot", hot, tally)
    return run(flow, task, source.times, tally)
