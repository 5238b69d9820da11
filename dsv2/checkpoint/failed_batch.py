"""Memory of a checkpoint for a failed micro-batch: that it failed, and the records to skip.

Micro-batches are numbered as for sinks, over all generations of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dsv2.base.folders import Folder
from dsv2.base.record_position import Offset, RecordPosition, SplitName
from dsv2.checks.json_documents import decoded, read_document, write_document
from dsv2.graph import Operator, Plan
from dsv2.graph.record_skips import SkippedRecords, warn_of_skip
from dsv2.runtime.report.subtask_report import SubtaskReport

_NAME = "dsv2/unblocking.json"
_WARNED = "dsv2/warned.json"  # a file of its own, because a run writes it when another one may have begun
_REMEDY = (
    "It lists the records that skip_records has asked to skip. Restore it from a backup, or delete it; the records are "
    "then processed again unless you ask again."
)


@dataclass(frozen=True)
class _Content:
    """The content of the file.

    Attributes:
        failed: The micro-batch in which a callback failed last, or None.
        skips: The records to skip, each with the last micro-batch that has skipped it, or None.
    """

    failed: int | None
    skips: tuple[tuple[RecordPosition, int | None], ...]


@dataclass(frozen=True)
class _Warned:
    """The records that a run has warned about."""

    records: list[RecordPosition]


class Unblocking:
    """The file ``dsv2/unblocking.json`` of ``checkpoint``, for a run that begins with the micro-batch ``first_batch``.

    A job that has neither failed nor skipped records has no such file. ``asked``: What the start asks to skip; a source
    without positions withdraws the requests for its records that no micro-batch has skipped.

    Raises:
        CorruptDataError: The file is damaged.
    """

    def __init__(self, checkpoint: Folder, asked: SkippedRecords, first_batch: int) -> None:
        self._checkpoint = checkpoint
        self._first_batch = first_batch
        self._stored = read_document(checkpoint, _NAME, _Content, _REMEDY) or _Content(None, ())
        before, withdrawn = dict(self._stored.skips), {uid for uid, places in asked.items() if not places}
        kept = {at: batch for at, batch in before.items() if batch is not None or at.source not in withdrawn}
        after = {**dict.fromkeys(_positions(asked)), **kept}
        self._content = replace(self._stored, skips=tuple(after.items()))
        # A request that is withdrawn, and made again, is a new one.
        self._warned = self._read_warned() & before.keys() & after.keys() if before else set()

    @property
    def failed_before(self) -> bool:
        """True if the first micro-batch of the run is one that has failed."""
        return self._content.failed == self._first_batch

    @property
    def skips(self) -> SkippedRecords:
        """The records that the run skips: all that no complete micro-batch has skipped."""
        active = (at for at, batch in self._content.skips if batch is None or batch >= self._first_batch)
        return _by_source(active)

    @property
    def unread(self) -> list[RecordPosition]:
        """The records that no micro-batch has skipped yet, without those that a run has already warned about."""
        return [at for at, batch in self._content.skips if batch is None and at not in self._warned]

    def write(self) -> None:
        """Write the records to skip, before the run begins."""
        self._write(self._content)

    def note_failure(self, batch: int) -> None:
        """Record that a callback has failed in ``batch``."""
        self._write(replace(self._content, failed=batch))

    def note_skipped(self, batch: int, skipped: SkippedRecords) -> None:
        """Record which records a micro-batch has skipped, before it is committed."""
        if found := _positions(skipped):
            skips = dict(self._content.skips) | dict.fromkeys(found, batch)
            self._write(replace(self._content, skips=tuple(skips.items())))

    def warn_of_read(self, plan: Plan, is_read: Callable[[Operator, RecordPosition], bool]) -> None:
        """Warn about each record that can no longer be skipped. Called when the run begins.

        ``is_read``: Whether earlier micro-batches have certainly read a record of a source.
        """
        sources = {operator.uid: operator for operator in plan.operators}
        read = [at for at in self.unread if at.source in sources and is_read(sources[at.source], at)]
        self._warn(plan, read, "earlier micro-batches have read this record")

    def warn_of_missed(self, plan: Plan) -> None:
        """Warn about each record that the run was to skip but has not read."""
        self._warn(plan, self.unread, "the run has not read this record")

    def _warn(self, plan: Plan, records: list[RecordPosition], why: str) -> None:
        """Warn about records, about each of them once in all runs."""
        if not records:
            return
        self._warned |= set(records)
        write_document(self._checkpoint, _WARNED, _Warned(sorted(self._warned, key=repr)))
        sources = {operator.uid: operator for operator in plan.operators}
        for at in records:
            if at.source in sources:
                warn_of_skip(sources[at.source], at.split, at.offset, why)

    def _read_warned(self) -> set[RecordPosition]:
        try:
            return set(decoded(self._checkpoint.read(_WARNED), _Warned).records)
        except ValueError:
            return set()  # it is missing or damaged: it warns again

    def _write(self, content: _Content) -> None:
        if content != self._stored:
            write_document(self._checkpoint, _NAME, content)
            self._stored = content
        self._content = content


def skipped_in(reports: Iterable[SubtaskReport]) -> SkippedRecords:
    """Return the records that were skipped according to the reports of a micro-batch."""
    return _by_source(RecordPosition(report.uid, *place) for report in reports for place in report.skipped)


def _positions(records: SkippedRecords) -> list[RecordPosition]:
    return [RecordPosition(uid, *place) for uid, places in records.items() for place in sorted(places, key=repr)]


def _by_source(positions: Iterable[RecordPosition]) -> SkippedRecords:
    found: dict[str, frozenset[tuple[SplitName, Offset]]] = {}
    for at in positions:
        found[at.source] = found.get(at.source, frozenset()) | {(at.split, at.offset)}
    return found
