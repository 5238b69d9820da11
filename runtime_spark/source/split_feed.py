"""Feeds of sources with splits. The coordinator runs on the driver's host, and the readers run in the tasks.

The planners of sources run in other processes, and pass the progress of splits to the driver: each source has a file,
like those of ``source_reports``. A planner writes it when something has changed, and the driver reads it when it needs
the progress. So splits that are paused between two micro-batches are known as well.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from dsv2.base.clock import Clock
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.jobs.progress import SplitProgress
from dsv2.runtime.sources.adaptive_limit import AdaptiveLimit
from dsv2.runtime.sources.alignment import AlignmentBoard
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, ReaderOrder, Report, orders
from dsv2.runtime.sources.split_progress import event_times, with_event_times
from dsv2.sources import Source
from runtime_spark.checkpoint.source_reports import ReportFile, replace_file
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


class ObservedFeed(Feed):
    """A feed whose planner writes the progress of its splits to a file in ``folder``."""

    def __init__(self, feed: Feed, folder: str) -> None:
        self._feed = feed
        self._folder = folder
        self.made_on_driver = feed.made_on_driver
        self.made_of_frames = feed.made_of_frames

    def planner(self, operator: Operator, clock: Clock) -> Planner:
        return ObservedPlanner(self._feed.planner(operator, clock), _path(self._folder, operator.id))

    def rows(self, job: WorkerJob, operator: Operator, portion: Any) -> Iterator[list[Row]]:
        return self._feed.rows(job, operator, portion)


class ObservedPlanner(Planner):
    """A planner that writes the progress of its splits."""

    def __init__(self, planner: Planner, path: Path) -> None:
        self._planner = planner
        self._path = path
        self._written: Sequence[SplitProgress] = ()

    def initial(self) -> SparkOffset:
        return self._planner.initial()

    def latest(self, start: SparkOffset, *, only_available: bool) -> SparkOffset:
        there = self._planner.latest(start, only_available=only_available)
        splits = self._planner.splits()
        if splits != self._written:
            self._written = splits
            with contextlib.suppress(OSError):  # the job does not depend on its progress
                replace_file(self._path, msgspec.json.encode(splits).decode())
        return there

    def portions(self, start: SparkOffset, end: SparkOffset) -> Sequence[Any]:
        return self._planner.portions(start, end)

    def commit(self, offset: SparkOffset) -> None:
        self._planner.commit(offset)

    def close(self) -> None:
        self._planner.close()


class SplitFiles:
    """The splits of all sources, on the driver.

    Args:
        plan: The plan.
        folder: Where the planners write.
    """

    def __init__(self, plan: Plan, folder: str) -> None:
        sources = [operator for operator in plan.operators if operator.kind is OperatorKind.SOURCE]
        self._paths = {operator.uid: _path(folder, operator.id) for operator in sources}
        self._times: dict[str, dict[str, int | None]] = {uid: {} for uid in self._paths}
        self._read: dict[str, list[SplitProgress]] = {uid: [] for uid in self._paths}

    def note(self, reports: Iterable[Report]) -> None:
        """Note the event time in reports of readers."""
        for report in reports:
            times = self._times[report["source"]]
            times.update(event_times([report]))

    def read(self) -> dict[str, tuple[SplitProgress, ...]]:
        """Return the splits of each source, by uid."""
        for uid, path in self._paths.items():
            # There is no file before the first plan, of a source without a planner, and after the run.
            with contextlib.suppress(FileNotFoundError):
                self._read[uid] = msgspec.json.decode(path.read_bytes(), type=list[SplitProgress])
        return {uid: with_event_times(splits, self._times[uid]) for uid, splits in self._read.items()}


def _path(folder: str, operator_id: int) -> Path:
    return Path(folder, f"{operator_id}.splits")
