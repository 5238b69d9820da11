"""PyFlink: tweets carry the newest posting time, because PyFlink has no custom watermarks.

Heaps are in a field of the function, as in FLIP-467, which Flink does not checkpoint. In the modes with ``state``, they
are in keyed state, which it checkpoints; a heap is pickled, and read and written as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from pyflink.common import Types
from pyflink.datastream import (
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor

from benchmarks.jobs.hot_topics import WINDOW, Tweets, threshold
from benchmarks.peers.protocol import Notes, Outcome, Task
from benchmarks.peers.pyflink_job import Clock, numbers, run

__all__ = ("measure",)

TIMED = Types.TUPLE([Types.STRING(), Types.LONG(), Types.LONG()])
"""The topic and posting time of a tweet, and the newest posting time of the tweets before it."""


class Extractor(MapFunction):
    """Creates the tweet of a number."""

    def __init__(self, task: Task, notes: Notes) -> None:
        self.make = Tweets(task.keys)
        self.clock = Clock(task, notes)
        self.newest = -1

    def map(self, value: int) -> tuple[str, int, int]:
        self.clock.see(value)
        newest = self.newest
        topic, posting_time = self.make(value)
        if posting_time > newest:
            self.newest = posting_time
        return topic, posting_time, newest

    def close(self) -> None:
        self.clock.end()


class Detector(KeyedProcessFunction):
    """Emits the size of a topic's heap whenever it exceeds the threshold."""

    def __init__(self, task: Task) -> None:
        self.threshold = threshold(task)
        self.heaps: dict[str, list[int]] = {}

    def process_element(self, value: tuple[str, int, int], ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        topic, posting_time, newest = value
        heap = self.heaps.setdefault(topic, [])
        hold(heap, posting_time, newest)
        if len(heap) > self.threshold:
            yield len(heap)


class CheckpointedDetector(KeyedProcessFunction):
    """A detector with heaps in keyed state."""

    def __init__(self, task: Task) -> None:
        self.threshold = threshold(task)

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("heap", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: tuple[str, int, int], ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        _, posting_time, newest = value
        heap = self.state.value() or []
        hold(heap, posting_time, newest)
        self.state.update(heap)
        if len(heap) > self.threshold:
            yield len(heap)


def hold(heap: list[int], posting_time: int, newest: int) -> None:
    """Evict old tweets, and add a tweet."""
    oldest_kept = newest - WINDOW
    while heap and heap[0] < oldest_kept:
        heappop(heap)
    heappush(heap, posting_time)


def measure(task: Task) -> Outcome:
    """Run the job with one subtask per operator: PyFlink's functions use at most one core in any case."""

    def build(env: StreamExecutionEnvironment, notes: Notes) -> DataStream:
        tweets = numbers(env, task.total).map(Extractor(task, notes), output_type=TIMED)
        keyed = tweets.key_by(lambda tweet: tweet[0], key_type=Types.STRING())
        detector = CheckpointedDetector(task) if "state" in task.mode else Detector(task)
        return keyed.process(detector, output_type=Types.LONG())

    return run(task, build)
