"""Feeds of sources with splits. The coordinator runs on the driver's host, and the readers run in the tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dsv2.base.clock import Clock
from dsv2.graph import Operator
from dsv2.jobs.progress import SplitProgress
from dsv2.runtime.sources.adaptive_limit import AdaptiveLimit
from dsv2.runtime.sources.alignment import AlignmentBoard
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, ReaderOrder, orders
from dsv2.sources import Source
from runtime_spark.checkpoint.source_reports import ReportFile
from runtime_spark.frames.rows import Row
from runtime_spark.frames.worker import WorkerJob
from runtime_spark.source.frame_source import PACE_SECONDS, Feed, Planner, SparkOffset
from runtime_spark.source.source_read import range_rows


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
            time.sleep(PACE_SECONDS)  # an unchanged offset would end the job

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
            time.sleep(PACE_SECONDS)
            continue
        offset = there
        for order in orders(offset, source.split_serializer):
            so_far = whole[order.subtask]
            whole[order.subtask] = replace(so_far, steps=so_far.steps + order.steps, now_ms=order.now_ms)
    coordinator.close()
    return whole
