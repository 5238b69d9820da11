"""Reads the log of a file sink.

An entry is a file ``<version>.json``; versions count from 1. ``<version>.snapshot.json`` contains the result of all
entries up to a version. Older entries are deleted once there is a later snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dsv2.base.folders import ReadableFolder
from dsv2.base.type_variables import T
from dsv2.checks.json_documents import encoded, read_document
from dsv2.errors import CorruptDataError
from dsv2.file_log.entry import DataFile, Entry, Snapshot
from dsv2.file_log.names import LOG

_SNAPSHOT = ".snapshot.json"
_ENTRY = ".json"
_FORMAT = 1
_ATTEMPTS = 5
_REMEDY = "It is part of the log of a file sink. Restore it from a backup."


@dataclass
class LogState:
    """The output according to the entries up to ``version``.

    Attributes:
        version: The number of the last entry; 0 without entries.
        last_batch: The last micro-batch with records; -1 if there is none.
        files: The files of the output by path, in the order in which they were added.
        replaced: The files that are no longer part of it, with the time of their removal in ms.
        run: Who wrote the last entry.
        is_closed: Whether the last run has ended normally.
    """

    version: int = 0
    last_batch: int = -1
    files: dict[str, DataFile] = field(default_factory=dict)
    replaced: dict[str, int] = field(default_factory=dict)
    run: str = ""
    is_closed: bool = True

    def apply(self, entry: Entry) -> None:
        """Add the next entry."""
        self.version += 1
        for path in entry.removed:
            del self.files[path]
            self.replaced[path] = entry.time_ms
        self.files |= {file.path: file for file in entry.added}
        self.run = entry.run
        if entry.batch is not None:
            self.last_batch = entry.batch
        if entry.opens or entry.closes:
            self.is_closed = entry.closes

    def encoded(self) -> bytes:
        """Return the content of a snapshot."""
        files = list(self.files.values())
        return encoded(Snapshot(_FORMAT, self.version, self.last_batch, files, self.replaced, self.run, self.is_closed))

    @staticmethod
    def of(found: Snapshot) -> LogState:
        """Return the state in a snapshot."""
        files = {file.path: file for file in found.files}
        return LogState(found.version, found.last_batch, files, found.replaced, found.run, found.closed)


def has_log(folder: ReadableFolder) -> bool:
    """Return whether the folder of a sink has a log."""
    return bool(folder.sizes(LOG))


def read_log(folder: ReadableFolder) -> LogState:
    """Read the log in the folder of a sink, which may be written meanwhile.

    Raises:
        CorruptDataError: An entry is damaged or missing; the message names it.
    """
    missing = ""
    for _ in range(_ATTEMPTS):  # entries are deleted when later ones are in a snapshot
        known = snapshots(folder)
        state = _read_snapshot(folder, known[-1]) if known else LogState()
        if state is None:
            continue
        newest = max(versions(folder), default=0)
        missing = _read_entries(folder, state, newest)
        if not missing:
            return state
    raise CorruptDataError(f"{folder.place(missing or LOG)} is missing. {_REMEDY}")


def snapshots(folder: ReadableFolder) -> list[int]:
    """Return the versions of snapshots."""
    return folder.numbers(LOG, suffix=_SNAPSHOT)


def versions(folder: ReadableFolder) -> list[int]:
    """Return the versions of entries."""
    return folder.numbers(LOG, suffix=_ENTRY)


def entry_name(version: int) -> str:
    """Return the name of an entry, relative to the folder of the sink."""
    return f"{LOG}/{version:020}{_ENTRY}"


def snapshot_name(version: int) -> str:
    """Return the name of a snapshot, relative to the folder of the sink."""
    return f"{LOG}/{version:020}{_SNAPSHOT}"


def read_part(folder: ReadableFolder, name: str, kind: type[T]) -> T | None:
    """Read a file of the log, or one beside it; None if it does not exist. Raises ``CorruptDataError``, naming it."""
    return read_document(folder, name, kind, _REMEDY)


def _read_snapshot(folder: ReadableFolder, version: int) -> LogState | None:
    name = snapshot_name(version)
    found = read_part(folder, name, Snapshot)
    if found is not None and found.format != _FORMAT:
        raise CorruptDataError(
            f"{folder.place(name)} is damaged: its format is {found.format}, which another version of dsv2 has "
            f"written. {_REMEDY}"
        )
    return None if found is None else LogState.of(found)


def _read_entries(folder: ReadableFolder, state: LogState, newest: int) -> str:
    """Apply the entries up to ``newest``. Returns the name of an entry that does not exist, or nothing."""
    while state.version < newest:
        name = entry_name(state.version + 1)
        entry = read_part(folder, name, Entry)
        if entry is None:
            return name
        try:
            state.apply(entry)
        except KeyError as error:
            place = folder.place(name)
            raise CorruptDataError(f"{place} is damaged: it removes {error}, which is not there. {_REMEDY}") from error
    return ""
