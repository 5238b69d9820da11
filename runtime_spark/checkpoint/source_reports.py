"""Passes the reports of source readers from the tasks back to the planners.

Reports arrive with the rows of a micro-batch. One file per source passes them to the planners, which run in other
processes on the driver's host. They are also stored in the checkpoint before Spark commits the micro-batch, for the
planners of the next run.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from dsv2.base.folders import Folder
from dsv2.checks.json_documents import read_existing, write_document
from dsv2.graph import OperatorKind, Plan
from dsv2.runtime.sources.alignment import AlignmentBoard
from dsv2.runtime.sources.offsets import Report

_REPORTS = "dsv2/reports"


def replace_file(path: Path, text: str) -> None:
    """Replace the content of ``path`` atomically."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)


class ReportFile:
    """Passes the reports of one source on its last micro-batch between two processes of one host."""

    def __init__(self, folder: str, operator_id: int) -> None:
        self._path = Path(folder, f"{operator_id}.json")

    def write(self, reports: list[Report]) -> None:
        """Replace the reports."""
        replace_file(self._path, json.dumps(reports))

    def read(self) -> list[Report]:
        """Return the reports written last; empty if there are none."""
        try:
            reports: list[Report] = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        return reports


class FileBoard(AlignmentBoard):
    """For sources whose planners run in separate processes on one host. Each has a file in ``folder``."""

    def __init__(self, plan: Plan, folder: str) -> None:
        super().__init__(plan)
        self._folder = folder
        self._reported: dict[int, int | None] = {}

    def report(self, operator_id: int, time: int | None) -> None:
        if operator_id not in self._reported or self._reported[operator_id] != time:
            self._reported[operator_id] = time
            replace_file(self._path(operator_id), json.dumps(time))

    def _read(self, operator_id: int) -> tuple[bool, int | None]:
        try:
            return True, json.loads(self._path(operator_id).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False, None

    def _path(self, operator_id: int) -> Path:
        return Path(self._folder, f"{operator_id}.time")


@dataclass(frozen=True)
class _Archived:
    """A file: the reports of each source, by uid, on its last micro-batch."""

    reports: dict[str, list[Report]]


class ReportArchive:
    """Stores the reports of each micro-batch. ``folder``: Where the planners find them. ``stored``: Earlier ones.

    The checkpoint holds the reports of the last two micro-batches, because Spark may not have committed the last one.
    """

    def __init__(self, checkpoint: Folder, stored: StoredReports, plan: Plan, folder: str) -> None:
        self._checkpoint = checkpoint
        self._stored = stored
        sources = [operator for operator in plan.operators if operator.kind is OperatorKind.SOURCE]
        self._files = {op.uid: ReportFile(folder, op.id) for op in sources if plan.readers_report(op)}
        self._latest: dict[str, list[Report]] = {}
        self._archived: list[int] = []  # the micro-batches that have a file

    def restore(self, origin: Mapping[str, list[Report]] | None = None) -> None:
        """Pass the reports of the previous run to the planners. Call this before the query starts.

        ``origin``: The reports in the savepoint with which the checkpoint began. None (default): it began without.

        Raises:
            CorruptDataError: The file of the reports is damaged.
        """
        if not self._files:
            return
        self._archived = list(self._stored.numbers)
        found = self._stored.read(self._archived[-1]) if self._archived else origin or {}
        for uid, reports in found.items():
            if uid in self._files:
                self._latest[uid] = reports
                self._files[uid].write(reports)

    def add(self, batch_id: int, reports: list[Report]) -> None:
        """Store ``reports`` of the readers that had work in Spark's micro-batch ``batch_id``."""
        if not reports:
            return
        by_source: dict[str, list[Report]] = {}
        for report in reports:
            by_source.setdefault(report["source"], []).append(report)
        self._latest |= by_source
        self._archive(batch_id)
        for uid, of_source in by_source.items():
            self._files[uid].write(of_source)

    def _archive(self, batch_id: int) -> None:
        write_document(self._checkpoint, _name(batch_id), _Archived(self._latest))
        self._archived = [*(number for number in self._archived if number != batch_id), batch_id]
        while len(self._archived) > 2:
            self._checkpoint.delete(_name(self._archived.pop(0)))


class StoredReports:
    """The reports in a generation of a checkpoint. Each file is read once."""

    def __init__(self, checkpoint: Folder) -> None:
        self._checkpoint = checkpoint
        self._read: dict[int, dict[str, list[Report]]] = {}

    @cached_property
    def numbers(self) -> list[int]:
        """The micro-batches that have a file."""
        return self._checkpoint.numbers(_REPORTS, suffix=".json")

    def as_of(self, batch_id: int) -> dict[str, list[Report]]:
        """Return the reports of each source on its last micro-batch up to ``batch_id``, one of the last two.

        Raises:
            CorruptDataError: The file of the reports is damaged.
        """
        archived = [number for number in self.numbers if number <= batch_id]
        return self.read(archived[-1]) if archived else {}

    def read(self, batch_id: int) -> dict[str, list[Report]]:
        """Return the reports in the file of a micro-batch. Raises ``CorruptDataError`` if it is damaged."""
        if batch_id not in self._read:
            remedy = (
                f"It records the event time of the sources after micro-batch {batch_id}. Restore it from a backup, or "
                f"delete it; readers then report it again."
            )
            found = read_existing(self._checkpoint, _name(batch_id), _Archived, remedy)
            self._read[batch_id] = found.reports
        return self._read[batch_id]


def _name(batch_id: int) -> str:
    return f"{_REPORTS}/{batch_id}.json"
