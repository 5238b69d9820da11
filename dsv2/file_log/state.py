"""Reads the log of a file sink.

An entry is a file ``<version>.json``; versions count from 1. ``<version>.snapshot.json`` contains the result of all
entries up to a version. Older entries are deleted once there is a later snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dsv2.errors import CorruptDataError
from dsv2.file_log.entry import DataFile, Entry, as_data_file, as_values
from dsv2.file_log.names import LOG
from dsv2.folders import ReadableFolder
from dsv2.program.checked_json import from_json, to_json

__all__ = ("LogState", "entry_name", "has_log", "read_checked", "read_log", "snapshot_name", "snapshots", "versions")

_SNAPSHOT = ".snapshot.json"
_ENTRY = ".json"
_FORMAT = 1
_ATTEMPTS = 5


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

    def __init__(self) -> None:
        self.version = 0
        self.last_batch = -1
        self.files: dict[str, DataFile] = {}
        self.replaced: dict[str, int] = {}
        self.run = ""
        self.is_closed = True

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
        return to_json(
            {
                "format": _FORMAT,
                "version": self.version,
                "last_batch": self.last_batch,
                "files": [as_values(file) for file in self.files.values()],
                "replaced": self.replaced,
                "run": self.run,
                "closed": self.is_closed,
            }
        )

    @staticmethod
    def decoded(values: Mapping[str, Any]) -> LogState:
        """Return the state in a snapshot. Raises ``LookupError``, ``TypeError`` or ``ValueError``."""
        if values["format"] != _FORMAT:
            raise ValueError(f"its format is {values['format']}, which another version of dsv2 has written")
        state = LogState()
        state.version = int(values["version"])
        state.last_batch = int(values["last_batch"])
        state.files = {file.path: file for file in map(as_data_file, values["files"])}
        state.replaced = {str(path): int(time) for path, time in values["replaced"].items()}
        state.run = str(values["run"])
        state.is_closed = bool(values["closed"])
        return state


def has_log(folder: ReadableFolder) -> bool:
    """Whether the folder of a sink has a log."""
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
    raise CorruptDataError(
        f"{folder.place(missing or LOG)} is missing. It is part of the log of a file sink. Restore it from a backup."
    )


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


def read_checked(folder: ReadableFolder, name: str) -> dict[str, Any] | None:
    """Read a file of JSON with a checksum; None if it does not exist. Raises ``CorruptDataError``, naming it."""
    data = folder.read(name)
    if data is None:
        return None
    try:
        return from_json(data)
    except ValueError as error:
        raise _damaged(folder, name, error) from error


def _read_snapshot(folder: ReadableFolder, version: int) -> LogState | None:
    name = snapshot_name(version)
    values = read_checked(folder, name)
    try:
        return None if values is None else LogState.decoded(values)
    except (LookupError, TypeError, ValueError) as error:
        raise _damaged(folder, name, error) from error


def _read_entries(folder: ReadableFolder, state: LogState, newest: int) -> str:
    """Apply the entries up to ``newest``. Returns the name of an entry that does not exist, or nothing."""
    while state.version < newest:
        name = entry_name(state.version + 1)
        values = read_checked(folder, name)
        if values is None:
            return name
        try:
            state.apply(Entry.from_json(values))
        except (LookupError, TypeError, ValueError) as error:
            raise _damaged(folder, name, error) from error
    return ""


def _damaged(folder: ReadableFolder, name: str, error: Exception) -> CorruptDataError:
    return CorruptDataError(
        f"{folder.place(name)} is damaged: {error}. It is part of the log of a file sink. Restore it from a backup."
    )
