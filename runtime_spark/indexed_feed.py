"""Feeds of collections and generators, and two feeds without records that only pace micro-batches.

Offsets are ``{"position": index of the next record}``, with ``"ended": true`` once the end was sent, and ``"limit"`` if
micro-batches have a target duration (``AdaptiveLimit.multiple``). The position is -1 before anything was sent.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from dsv2.clock import Clock
from dsv2.graph import Operator
from dsv2.progress import SplitProgress
from dsv2.runtime.sources.adaptive_limit import AdaptiveLimit
from dsv2.runtime.sources.continuation import check_content
from dsv2.runtime.sources.indexed_pace import DEFAULT_RECORDS_PER_BATCH, IndexedPace
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.sources.split_progress import indexed_split
from dsv2.sources import CollectionSource, IndexedSource, ReadSchedule
from dsv2.sources.source import LEAST_PER_BATCH
from runtime_spark.frame_source import PACE_SECONDS, Feed, Planner, SparkOffset
from runtime_spark.rows import FrameEncoder, Row
from runtime_spark.source_read import IndexRange, range_rows
from runtime_spark.worker import WorkerJob

__all__ = ("IndexedFeed", "StartFeed", "TickFeed")

_BEFORE_START = -1


class CountingFeed(Feed):
    """A feed of indexed items, with their number and rate."""

    count: int | None = None
    unit = "records"
    records_per_batch: int | None = None
    records_per_second: float | None = None
    target_batch_ms: int | None = None

    def subtasks(self, operator: Operator) -> int:
        """Return the number of portions of a micro-batch."""
        return operator.parallelism

    def schedule(self, operator: Operator) -> ReadSchedule | None:
        """Return where reading halts during the run, if it does."""
        return None

    def planner(self, operator: Operator, clock: Clock) -> Planner:
        return CountingPlanner(self, operator, clock)


class CountingPlanner(Planner):
    """Advances by as many records as its feed provides now."""

    def __init__(self, feed: CountingFeed, operator: Operator, clock: Clock) -> None:
        self._feed = feed
        self._operator = operator
        self._clock = clock
        self._pace = IndexedPace(feed.records_per_second, clock)
        self._goal: int | None = None
        self._there = self.initial()
        self._moved_ms: int | None = None
        self._schedule = feed.schedule(operator)
        self._adaptive = None if feed.target_batch_ms is None else AdaptiveLimit(feed.target_batch_ms, clock)

    def initial(self) -> SparkOffset:
        return {"position": _BEFORE_START}

    def latest(self, start: SparkOffset, *, only_available: bool) -> SparkOffset:
        there = self._end_of_next(start, only_available=only_available)
        if there["position"] > max(start["position"], 0):
            self._moved_ms = self._clock.now_ms()
        self._there = there
        return there

    def splits(self) -> Sequence[SplitProgress]:
        position = max(self._there["position"], 0)
        available = self._pace.available(position)
        ended = _has_ended(self._there)
        return [indexed_split(position, self._feed.count, available, ended=ended, moved_at_ms=self._moved_ms)]

    def _end_of_next(self, start: SparkOffset, *, only_available: bool) -> SparkOffset:
        check_content(self._operator, start, self._feed.count, self._feed.unit)
        if _has_ended(start):
            return start
        position, count = max(start["position"], 0), self._feed.count
        if self._adaptive is not None:
            self._adaptive.resume(start.get("limit", 1.0))
            self._adaptive.measure()
        if self._is_halted(start["position"], wait=only_available):
            return self._offset(start, position)
        available = self._available(position)
        while only_available and count is not None and available == position < count:
            # All records count as available, at their own rate. An unchanged offset would end the query.
            time.sleep(PACE_SECONDS)
            available = self._available(position)
        limit = self._feed.records_per_batch or DEFAULT_RECORDS_PER_BATCH
        if self._adaptive is not None:
            limit = min(limit, self._adaptive.of(LEAST_PER_BATCH))
        stop = position + limit
        if available is not None:
            stop = min(stop, available)
        if only_available and count is None:
            if self._goal is None:
                self._goal = stop if available is None else available
            stop = min(stop, self._goal)
        if self._schedule is not None and (halt := self._schedule.next_halt(position)) is not None:
            stop = min(stop, halt)
        if self._adaptive is not None and stop > position:
            self._adaptive.begin(stop - position, LEAST_PER_BATCH)
        stop = max(stop, position)
        return self._offset(start, stop, ended=stop == count)

    def portions(self, start: SparkOffset, end: SparkOffset) -> Sequence[IndexRange]:
        begin, stop = start["position"], end["position"]
        if self._schedule is not None:
            self._schedule.begin(begin)
        if start == end:
            return []
        first, last = begin == _BEFORE_START, _has_ended(end)
        subtasks = range(self._feed.subtasks(self._operator))
        return [IndexRange(subtask, max(begin, 0), stop, first, last) for subtask in subtasks]

    def commit(self, offset: SparkOffset) -> None:
        pass  # the source does not need commits

    def close(self) -> None:
        pass  # nothing is open

    def _offset(self, start: SparkOffset, position: int, *, ended: bool = False) -> SparkOffset:
        if position == start["position"] and not ended:
            return start  # a new limit alone is no reason for a micro-batch
        end: SparkOffset = {"position": position, "ended": True} if ended else {"position": position}
        return end if self._adaptive is None else {**end, "limit": self._adaptive.multiple}

    def _is_halted(self, position: int, *, wait: bool) -> bool:
        """``wait``: Wait until the halt is over, unless it lasts for the rest of the run."""
        if self._schedule is None:
            return False
        self._schedule.begin(position)
        index = max(position, 0)
        halt = self._schedule.halt(index, self._clock.now_ms())
        while wait and halt is not None and halt.until_ms is not None:
            time.sleep(PACE_SECONDS)
            halt = self._schedule.halt(index, self._clock.now_ms())
        return halt is not None

    def _available(self, position: int) -> int | None:
        """Return the position up to which the feed can be read now; None if there is no limit."""
        limits = [limit for limit in (self._feed.count, self._pace.available(position)) if limit is not None]
        return min(limits, default=None)


class IndexedFeed(CountingFeed):
    """The records of an indexed source. ``target_batch_ms``: As in ``SplitFeed``."""

    def __init__(self, source: IndexedSource[Any], target_batch_ms: int | None = None) -> None:
        self.source = source
        self.target_batch_ms = target_batch_ms
        self.count = source.count
        self.records_per_batch = source.records_per_batch
        self.records_per_second = source.records_per_second
        self.made_on_driver = isinstance(source, CollectionSource)  # only the driver has its elements

    def schedule(self, operator: Operator) -> ReadSchedule | None:
        return self.source.schedule(f"{operator}, defined at {operator.location}")

    def rows(self, job: WorkerJob, operator: Operator, portion: IndexRange) -> Iterator[list[Row]]:
        yield from range_rows(job, operator, self.source, portion)


class StartFeed(CountingFeed):
    """Opens the subtasks downstream of a streaming DataFrame, which cannot detect its first micro-batch. Never ends."""

    records_per_second = 0.0

    def rows(self, job: WorkerJob, operator: Operator, portion: IndexRange) -> Iterator[list[Row]]:
        encoder = FrameEncoder(job.plan, job.layout, job.codec())
        task = SourceTask(job.plan, operator, portion.subtask, encoder.emit, job.source_functions)
        task.start()
        task.flush()
        yield encoder.take()


class TickFeed(CountingFeed):
    """The numbers 0 to ``count`` - 1 in ``seq``, one per micro-batch."""

    made_of_frames = False
    unit = "chunks of rows"
    records_per_batch = 1

    def __init__(self, count: int) -> None:
        self.count = count

    def subtasks(self, operator: Operator) -> int:
        return 1

    def rows(self, job: WorkerJob, operator: Operator, portion: IndexRange) -> Iterator[list[Row]]:
        yield [(0, 0, number, b"") for number in range(portion.start, portion.stop)]


def _has_ended(offset: SparkOffset) -> bool:
    return bool(offset.get("ended"))
