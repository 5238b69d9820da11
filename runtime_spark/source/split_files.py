"""Files that pass the progress of splits to the driver.

The planners of sources run in other processes. Each source has a file, like those of ``source_reports``. A planner
writes it when something has changed, and the driver reads it when it needs the progress. So splits that are paused
between two micro-batches are known as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from dsv2.graph import OperatorKind, Plan
from dsv2.jobs.progress import SplitProgress
from dsv2.runtime.sources.offsets import Report
from dsv2.runtime.sources.split_progress import event_times, with_event_times
from runtime_spark.checkpoint.source_reports import replace_file


class SplitFile:
    """The splits of one source, written by its planner to a file in ``folder``."""

    def __init__(self, folder: str, operator_id: int) -> None:
        self._path = _path(folder, operator_id)
        self._written: Sequence[SplitProgress] = ()

    def write(self, splits: Sequence[SplitProgress]) -> None:
        """Write ``splits`` if they have changed."""
        if splits != self._written:
            self._written = splits
            with contextlib.suppress(OSError):  # the job does not depend on its progress
                replace_file(self._path, msgspec.json.encode(splits).decode())


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
