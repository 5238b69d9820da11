"""Spark's own logs in a checkpoint, read before Spark does: where a run begins, and which files are damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID
from zlib import crc32

from dsv2.base.folders import Folder, LocalFolder
from dsv2.checks.json_documents import read_document, write_document
from dsv2.errors import CorruptDataError

_SUMS = "dsv2/logs.json"
_RESTORE_ALL = "Restore the whole checkpoint from a backup, or start from a new checkpoint_location."


@dataclass(frozen=True)
class Beginning:
    """The micro-batch that a run begins with.

    Attributes:
        batch_id: Its number.
        repeats: Whether its offsets are already logged.
        logged: The offset of each source after the last two micro-batches; None if the source has not begun.
        has_metadata: Whether the checkpoint has the id of a query.
    """

    batch_id: int
    repeats: bool
    logged: Mapping[int, Sequence[str | None]] = field(default_factory=dict, compare=False)
    has_metadata: bool = field(default=False, compare=False)

    @property
    def has_begun(self) -> bool:
        """True if a micro-batch has begun."""
        return self.repeats or self.batch_id > 0


@dataclass(frozen=True)
class _Checksums:
    """A file: the checksums of the newest logs, by name."""

    sums: Mapping[str, int]


def note_logs(checkpoint: Folder, batch_id: int) -> None:
    """Record the checksums of the logs with which a micro-batch begins. On a local disk, nothing else protects them."""
    if isinstance(checkpoint, LocalFolder):
        names = (f"offsets/{batch_id}", f"offsets/{batch_id - 1}", f"commits/{batch_id - 1}")
        logs = {name: checkpoint.read(name) for name in names}
        sums = {name: crc32(data) for name, data in logs.items() if data is not None}
        write_document(checkpoint, _SUMS, _Checksums(sums))


def beginning_of(checkpoint: Folder) -> Beginning:
    """Find where the next run of ``checkpoint`` begins.

    Raises:
        CorruptDataError: A file is damaged or missing; the message names it.
    """
    offsets, commits = checkpoint.numbers("offsets"), checkpoint.numbers("commits")
    noted = read_document(checkpoint, _SUMS, _Checksums, "It holds only checksums. Delete it.") if offsets else None
    sums = {} if noted is None else noted.sums
    has_metadata = _check_metadata(checkpoint, begun=bool(offsets))
    found = _beginning(offsets, commits)
    if not offsets:
        return replace(found, has_metadata=has_metadata)
    last = offsets[-1]
    if commits:
        _check_commit(checkpoint, commits[-1], sums)
    logged = {last: _offsets(checkpoint, last, sums, committed=not found.repeats)}
    if last > 0:
        if last - 1 not in offsets:
            raise CorruptDataError(f"{checkpoint.place(f'offsets/{last - 1}')} is missing. {_RESTORE_ALL}")
        logged[last - 1] = _offsets(checkpoint, last - 1, sums, committed=True)
        before, sources = len(logged[last - 1]), len(logged[last])
        if before != sources:
            shorter = last if sources < before else last - 1
            remedy = _remedy_for_offsets(shorter, not found.repeats or shorter < last)
            raise CorruptDataError(
                f"{checkpoint.place(f'offsets/{shorter}')} is damaged: it has offsets for {min(sources, before)} "
                f"sources instead of {max(sources, before)}. {remedy}"
            )
    return replace(found, logged=logged, has_metadata=has_metadata)


def listed_beginning(checkpoint: Folder) -> Beginning:
    """Find where the next run begins, by the names of files only. The files were checked before."""
    return _beginning(checkpoint.numbers("offsets"), checkpoint.numbers("commits"))


def _beginning(offsets: Sequence[int], commits: Sequence[int]) -> Beginning:
    if not offsets:
        return Beginning(0, repeats=False)
    committed = bool(commits) and commits[-1] == offsets[-1]
    return Beginning(offsets[-1] + 1 if committed else offsets[-1], repeats=not committed)


def offsets_of(checkpoint: Folder, number: int) -> list[str | None]:
    """Return the offset of each source after a micro-batch, as Spark logged it; None if the source has not begun.

    Raises:
        CorruptDataError: The file is damaged or missing; the message names it.
    """
    return _offsets(checkpoint, number, {}, committed=True)


def _check_metadata(checkpoint: Folder, *, begun: bool) -> bool:
    """Return whether there is a file with the id of the query."""
    data = checkpoint.read("metadata")
    if data is None and not begun:
        return False
    try:
        UUID(json.loads(data or b"")["id"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        found = "is missing" if data is None else f"is damaged: {_describe(error)}"
        raise CorruptDataError(
            f"{checkpoint.place('metadata')} {found}. It holds only the id of Spark's query. Restore it from a backup, "
            f'or write {{"id":"<any UUID>"}} into it.'
        ) from error
    return True


def _offsets(checkpoint: Folder, number: int, sums: Mapping[str, int], *, committed: bool) -> list[str | None]:
    name = f"offsets/{number}"
    try:
        version, metadata, *offsets = _lines(checkpoint, name, sums)
        _check_version(version)
        if not isinstance(json.loads(metadata), dict):
            raise ValueError("its second line is not a JSON object")
        for offset in offsets:
            if offset != "-":
                json.loads(offset)
        if not offsets:
            raise ValueError("it has no offsets")
    except ValueError as error:
        raise CorruptDataError(
            f"{checkpoint.place(name)} is damaged: {_describe(error)}. {_remedy_for_offsets(number, committed)}"
        ) from error
    return [None if offset == "-" else offset for offset in offsets]


def _remedy_for_offsets(number: int, committed: bool) -> str:
    if committed:
        return f"It records what the complete micro-batch {number} read. {_RESTORE_ALL}"
    return (
        f"It records what the incomplete micro-batch {number} was to read. Restore it from a backup. If no sink has "
        f"received records of that micro-batch, you can also delete it; the micro-batch is then planned again from the "
        f"input that is available now."
    )


def _check_commit(checkpoint: Folder, number: int, sums: Mapping[str, int]) -> None:
    name = f"commits/{number}"
    try:
        version, content, *_ = _lines(checkpoint, name, sums)
        _check_version(version)
        if not isinstance(json.loads(content), dict):
            raise ValueError("its second line is not a JSON object")
    except ValueError as error:
        raise CorruptDataError(
            f"{checkpoint.place(name)} is damaged: {_describe(error)}. It records that micro-batch {number} is "
            f"complete. Restore it from a backup, or delete it; that micro-batch is then repeated."
        ) from error


def _lines(checkpoint: Folder, name: str, sums: Mapping[str, int]) -> list[str]:
    data = checkpoint.read(name) or b""
    if crc32(data) != sums.get(name, crc32(data)):
        raise ValueError("its checksum is different")
    return data.decode("utf-8").splitlines()


def _check_version(line: str) -> None:
    if not (line.startswith("v") and line[1:].isdigit()):
        raise ValueError(f"it begins with {line[:40]!r} instead of a version")


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
