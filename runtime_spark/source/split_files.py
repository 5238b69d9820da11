"""Passes the progress of splits from the planners of sources, which run in other processes, to the driver.

Each source has a file, like those of ``source_reports``. A planner writes it when something has changed, and the driver
reads it when it needs the progress. So splits that are paused between two micro-batches are known as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv2.base.clock import Clock
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.jobs.progress import SplitProgress
from dsv2.runtime.sources.offsets import Report
from dsv2.runtime.sources.split_progress import event_times, with_event_times
from runtime_spark.frames.rows import Row
from runtime_spark.frames.worker import WorkerJob
from runtime_spark.source.frame_source import Feed, Planner, SparkOffset
from runtime_spark.source.source_reports import replace_file


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
