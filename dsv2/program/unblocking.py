"""What a checkpoint remembers of a failed micro-batch: that it failed, and which records are to be skipped.

Micro-batches are numbered as for sinks, over all generations of the checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dsv2.errors import CorruptDataError
from dsv2.folders import Folder
from dsv2.graph import Plan
from dsv2.graph.skips import SkippedRecords, warn_of_missed_skips
from dsv2.program.checked_json import from_json, to_json
from dsv2.record_position import Offset, RecordPosition, SplitName

__all__ = ("Unblocking", "skipped_in")

_NAME = "dsv2/unblocking.json"


@dataclass(frozen=True)
class _Content:
    """The content of the file.

    Attributes:
        failed: The micro-batch in which a callback failed last, or None.
        skips: The records to skip, each with the last micro-batch that has skipped it, or None.
    """

    failed: int | None = None
    skips: Mapping[RecordPosition, int | None] = field(default_factory=dict)


class Unblocking:
    """The file ``dsv2/unblocking.json`` of ``checkpoint``, for a run that begins with the micro-batch ``first_batch``.

    A job that has neither failed nor skipped records has no such file.

    Raises:
        CorruptDataError: The file is damaged.
    """

    def __init__(self, checkpoint: Folder, asked: SkippedRecords, first_batch: int) -> None:
        self._checkpoint = checkpoint
        self._first_batch = first_batch
        self._has_warned = False
        self._stored = self._read()
        new = (RecordPosition(uid, *place) for uid, places in asked.items() for place in sorted(places, key=repr))
        self._content = replace(self._stored, skips={**dict.fromkeys(new), **self._stored.skips})

    @property
    def failed_before(self) -> bool:
        """Whether the first micro-batch of the run is one that has failed."""
        return self._content.failed == self._first_batch

    @property
    def skips(self) -> SkippedRecords:
        """The records that the run skips: all that no complete micro-batch has skipped."""
        active = (at for at, batch in self._content.skips.items() if batch is None or batch >= self._first_batch)
        return _by_source(active)

    @property
    def unread(self) -> list[RecordPosition]:
        """The records that no micro-batch has skipped yet."""
        return [at for at, batch in self._content.skips.items() if batch is None]

    def write(self) -> None:
        """Write the records to skip, before the run begins."""
        self._write(self._content)

    def note_failure(self, batch: int) -> None:
        """Record that a callback has failed in ``batch``."""
        self._write(replace(self._content, failed=batch))

    def note_skipped(self, batch: int, reports: Iterable[Mapping[str, Any]]) -> None:
        """Record which records a micro-batch has skipped, according to its reports, before it is committed."""
        if found := list(_positions(reports)):
            self._write(replace(self._content, skips={**self._content.skips, **dict.fromkeys(found, batch)}))

    def warn_of_missed(self, plan: Plan) -> None:
        """Warn about each record that the run was to skip but has not read. Once."""
        if self._has_warned:
            return
        self._has_warned = True
        warn_of_missed_skips(plan, _by_source(at for at, batch in self._content.skips.items() if batch is not None))

    def _read(self) -> _Content:
        data = self._checkpoint.read(_NAME)
        if data is None:
            return _Content()
        try:
            entry = from_json(data)
            skips = {RecordPosition(*at): batch for *at, batch in entry["skips"]}
            return _Content(entry["failed"], skips)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptDataError(
                f"{self._checkpoint.place(_NAME)} is damaged: {error!r}. It lists the records that skip_records has "
                f"asked to skip. Restore it from a backup, or delete it; the records are then processed again unless "
                f"you ask again."
            ) from error

    def _write(self, content: _Content) -> None:
        if content != self._stored:
            skips = [[at.source, at.split, at.offset, batch] for at, batch in content.skips.items()]
            self._checkpoint.write(_NAME, to_json({"failed": content.failed, "skips": skips}))
            self._stored = content
        self._content = content


def skipped_in(reports: Iterable[Mapping[str, Any]]) -> SkippedRecords:
    """Return the records that were skipped according to the reports of a micro-batch."""
    return _by_source(_positions(reports))


def _positions(reports: Iterable[Mapping[str, Any]]) -> Iterator[RecordPosition]:
    return (RecordPosition(report["uid"], *place) for report in reports for place in report.get("skipped", ()))


def _by_source(positions: Iterable[RecordPosition]) -> SkippedRecords:
    found: dict[str, frozenset[tuple[SplitName, Offset]]] = {}
    for at in positions:
        found[at.source] = found.get(at.source, frozenset()) | {(at.split, at.offset)}
    return found
