"""Writes a savepoint to a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from uuid import uuid4

from dsv2.errors import ConfigurationError
from dsv2.folders import Folder
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import JsonObject, Origin, SavepointFile, SavepointInfo, SourcePosition, write_info
from dsv2.savepoint.tables import parquet_files

__all__ = ("SavepointWriter", "check_unused", "operator_folders")


def check_unused(folder: Folder) -> None:
    """Raise ``ConfigurationError`` if the folder of a new savepoint exists and is not empty."""
    if folder.sizes():
        raise ConfigurationError(f"{folder.path} is not empty. A savepoint needs a folder of its own.")


def operator_folders(uids: Iterable[str]) -> dict[str, str]:
    """Return the folder for the rows of each operator. Uids may contain characters that paths cannot."""
    return {uid: f"operators/{number}" for number, uid in enumerate(sorted(uids))}


class SavepointWriter:
    """Writes the rows of each operator, then the description. For state that one process can read.

    Args:
        folder: Where to write. Must be empty.

    Raises:
        ConfigurationError: ``folder`` is not empty.
    """

    def __init__(self, folder: Folder) -> None:
        check_unused(folder)
        self._folder = folder
        self._files: dict[str, SavepointFile] = {}

    def write_rows(self, name: str, rows: Iterable[StateRow]) -> None:
        """Write the rows of an operator to the folder ``name``."""
        for number, data in enumerate(parquet_files(rows)):
            file = f"{name}/part-{number:05}.parquet"
            self._folder.write(file, data)
            self._files[file] = SavepointFile(len(data), sha256(data).hexdigest())

    def finish(
        self,
        origin: Origin,
        program: JsonObject,
        operators: Mapping[str, str],
        sources: Mapping[str, SourcePosition],
        sinks: Mapping[str, JsonObject],
    ) -> SavepointInfo:
        """Write the description (see ``SavepointInfo``) and return it."""
        info = SavepointInfo(str(uuid4()), origin, program, operators, sources, sinks, self._files)
        write_info(self._folder, info)
        return info
