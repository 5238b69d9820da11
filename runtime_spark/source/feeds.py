"""Feeds of sources: collections and generators, sources with splits, and two feeds that only pace micro-batches.

Of a source with splits, the coordinator runs on the driver's host, and the readers run in the tasks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import sleep
from typing import Any

from dsv2.base.clock import Clock
from dsv2.graph import Operator
from dsv2.jobs.progress import SplitProgress
from dsv2.runtime.sources.adaptive_limit import AdaptiveLimit
from dsv2.runtime.sources.alignment import AlignmentBoard
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.indexed_planner import IndexedPlanner, index_of
from dsv2.runtime.sources.offsets import BEFORE_START, ReaderOrder, has_ended, orders
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.sources import CollectionSource, IndexedSource, ReadSchedule, Source
from runtime_spark.checkpoint.source_reports import ReportFile
from runtime_spark.frames.rows import FrameEncoder, Row
from runtime_spark.frames.worker import WorkerJob
from runtime_spark.source.frame_source import PACE_SECONDS, Feed, Planner, SparkOffset
from runtime_spark.source.source_read import IndexRange, range_rows


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
        schedule = feed.schedule(operator)
        self._planner = IndexedPlanner(feed, operator, clock, schedule, feed.target_batch_ms, unit=feed.unit)

    def initial(self) -> SparkOffset:
        return self._planner.initial()

    def latest(self, start: SparkOffset, *, only_available: bool) -> SparkOffset:
        while True:
            halt = self._planner.halt(start, self._clock.now_ms())
            there = self._planner.next(start, None if halt is None else 0, only_available=only_available)
            is_certain = self._feed.count is not None if halt is None else halt.until_ms is not None
            if not only_available or not is_certain or has_ended(there) or index_of(there) > index_of(start):
                return there
            sleep(PACE_SECONDS)  # an unchanged offset would end the query

    def splits(self) -> Sequence[SplitProgress]:
        return self._planner.splits(self._clock.now_ms())

    def portions(self, start: SparkOffset, end: SparkOffset) -> Sequence[IndexRange]:
        self._planner.begin(start)
        if start == end:
            return []
        first, last = start == self.initial(), has_ended(end)
        subtasks = range(self._feed.subtasks(self._operator))
        return [IndexRange(subtask, index_of(start), index_of(end), first, last) for subtask in subtasks]


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


class SplitFeed(Feed):
    """The records of a source with splits.

    Args:
        source: The source.
        reports: The reports of its readers. None (default): there are none.
        board: Shares event time with other sources. None (default): sources are not aligned.
        target_batch_ms: How long a micro-batch should take. None (default): only the source's own limit applies.
    """

    made_on_driver = False

    def __init__(
        self,
        source: Source[Any, Any, Any],
        reports: ReportFile | None = None,
        board: AlignmentBoard | None = None,
        target_batch_ms: int | None = None,
    ) -> None:
        self.source = source
        self._reports = reports
        self._board = board
        self._target_batch_ms = target_batch_ms

    def planner(self, operator: Operator, clock: Clock) -> Planner:
        adaptive = None if self._target_batch_ms is None else AdaptiveLimit(self._target_batch_ms, clock)
        coordinator = SourceCoordinator(self.source, operator, clock, self._board, adaptive=adaptive)
        return SplitPlanner(self.source, coordinator, self._reports)

    def rows(self, job: WorkerJob, operator: Operator, portion: ReaderOrder) -> Iterator[list[Row]]:
        yield from range_rows(job, operator, self.source, portion)


class SplitPlanner(Planner):
    """Delegates to the source's coordinator. Spark logs the coordinator's offsets."""

    def __init__(
        self, source: Source[Any, Any, Any], coordinator: SourceCoordinator, reports: ReportFile | None
    ) -> None:
        self._source = source
        self._coordinator = coordinator
        self._reports = reports
        self._splits: Sequence[SplitProgress] = ()

    def initial(self) -> SparkOffset:
        return BEFORE_START

    def latest(self, start: SparkOffset, *, only_available: bool) -> SparkOffset:
        refresh = self._source.bounded or not only_available
        reports = [] if self._reports is None else self._reports.read()
        while True:
            there = self._coordinator.next(start, refresh=refresh, reports=reports)
            if there != start or not only_available or not self._coordinator.has_more_for_certain:
                if there != start or self._coordinator.is_aligned or not self._splits:
                    self._splits = self._coordinator.splits()
                return there
            sleep(PACE_SECONDS)  # an unchanged offset would end the job

    def portions(self, start: SparkOffset, end: SparkOffset) -> Sequence[ReaderOrder]:
        return [] if start == end else orders(end, self._source.split_serializer)

    def splits(self) -> Sequence[SplitProgress]:
        return self._splits

    def commit(self, offset: SparkOffset) -> None:
        self._coordinator.commit(offset)

    def close(self) -> None:
        self._coordinator.close()


def whole_orders(source: Source[Any, Any, Any], operator: Operator, clock: Clock) -> list[ReaderOrder]:
    """Return the orders with which readers read a whole bounded source, for BATCH jobs."""
    coordinator = SourceCoordinator(source, operator, clock, limited=False)
    whole = [ReaderOrder(subtask, 0, (), first=True, last=True) for subtask in range(operator.parallelism)]
    offset = BEFORE_START
    while not coordinator.ended:
        there = coordinator.next(offset)
        if there == offset:
            sleep(PACE_SECONDS)
            continue
        offset = there
        for order in orders(offset, source.split_serializer):
            so_far = whole[order.subtask]
            whole[order.subtask] = replace(so_far, steps=so_far.steps + order.steps, now_ms=order.now_ms)
    coordinator.close()
    return whole
