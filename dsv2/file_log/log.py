"""Writes the log of a file sink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from dsv2.base.folders import Folder, ReadableFolder
from dsv2.checks.json_documents import encoded
from dsv2.errors import JobError
from dsv2.file_log.entry import DataFile, Entry
from dsv2.file_log.merge_selection import in_order, read_ends
from dsv2.file_log.state import LogState, entry_name, read_log, snapshot_name, snapshots, versions

_ENTRIES_PER_SNAPSHOT = 100


class LogConflictError(JobError):
    """Someone else has written to the log."""


class FileLog:
    """The log of a sink, for its only writer. ``state`` is the result of all entries.

    Each entry has a version, and creating the file of a version that exists fails. So of two writers that believe to be
    the only one, the first continues, and the other one gets an error.

    Raises:
        CorruptDataError: The log is damaged.
    """

    def __init__(self, folder: Folder, *, entries_per_snapshot: int = _ENTRIES_PER_SNAPSHOT) -> None:
        self._folder = folder
        self._entries_per_snapshot = entries_per_snapshot
        self.state = read_log(folder)
        self._last_snapshot = max(snapshots(folder), default=0)

    def append(self, entry: Entry) -> None:
        """Add an entry.

        Raises:
            LogConflictError: Someone else has added one.
        """
        version = self.state.version + 1
        if not self._folder.create(entry_name(version), encoded(entry)):
            raise self._conflict()
        if max(snapshots(self._folder), default=0) >= version:  # the entry that was there has been deleted
            self._folder.delete(entry_name(version))
            raise self._conflict()
        self.state.apply(entry)

    def _conflict(self) -> LogConflictError:
        return LogConflictError(
            f"Another process has written to the log of {self._folder.path}: another driver of the job, or a command. "
            f"Stop it, and restart the job."
        )

    @property
    def needs_snapshot(self) -> bool:
        """True if there are many entries since the last snapshot."""
        return self.state.version - self._last_snapshot >= self._entries_per_snapshot

    def write_snapshot(self) -> None:
        """Write a snapshot, and delete what no reader needs any more: all that is older than the last snapshot."""
        if self.state.version == self._last_snapshot:
            return
        before, self._last_snapshot = self._last_snapshot, self.state.version
        self._folder.write(snapshot_name(self.state.version), self.state.encoded())
        for version in versions(self._folder):
            if version <= before:
                self._folder.delete(entry_name(version))
        for version in snapshots(self._folder):
            if version < before:
                self._folder.delete(snapshot_name(version))


@dataclass(frozen=True, slots=True)
class FilePart:
    """Consecutive records of a file.

    Attributes:
        file: The file.
        start: Where they begin, in rows for Parquet and in bytes for other formats.
        stop: Where they end. None: at the end of the file.
    """

    file: DataFile
    start: int = 0
    stop: int | None = None


def parts_between(folder: ReadableFolder, state: LogState, after: int, last: int) -> Iterator[FilePart]:
    """Yield the parts with the records of the micro-batches from ``after + 1`` to ``last``.

    Their order does not change when files are merged: by partition, then by micro-batch.

    Raises:
        CorruptDataError: The information about a merged file is missing or damaged.
    """
    for file in in_order(state.files.values()):
        if file.last <= after or file.first > last:
            continue
        if file.first > after and file.last <= last:
            yield FilePart(file)
            continue
        ends = read_ends(folder, file)
        start = max((end for batch, end in ends.items() if batch <= after), default=0)
        stop = max((end for batch, end in ends.items() if batch <= last), default=0)
        if stop > start:
            yield FilePart(file, start, stop)
