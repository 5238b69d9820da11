"""Writes a savepoint to a folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from uuid import uuid4

from dsv2.dead_letters.replay import Replays
from dsv2.errors import ConfigurationError
from dsv2.folders import Folder
from dsv2.program.description import Description
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import (
    JsonObject,
    Origin,
    SavepointFile,
    SavepointInfo,
    SourcePosition,
    sink_positions,
    write_info,
)
from dsv2.savepoint.tables import SavepointTable, TableId, parquet_files

__all__ = ("SavepointWriter", "check_unused", "folders_of")


def check_unused(folder: Folder) -> None:
    """Raise ``ConfigurationError`` if the folder of a new savepoint is a file, or exists and is not empty."""
    try:
        is_used = bool(folder.sizes())
    except NotADirectoryError as error:
        raise ConfigurationError(f"{folder.path} is a file. A savepoint needs a folder of its own.") from error
    if is_used:
        raise ConfigurationError(f"{folder.path} is not empty. A savepoint needs a folder of its own.")


def folders_of(tables: Iterable[TableId]) -> dict[TableId, str]:
    """Return a folder for each table."""
    in_order = sorted(tables, key=lambda table: (table.uid, table.kind, table.state or ""))
    return {table: f"state/{table.folder(number)}" for number, table in enumerate(in_order)}


class SavepointWriter:
    """Writes the tables, then the description. For state that fits in the memory of one process.

    Args:
        folder: Where to write. Must be empty.
        programs: The programs that wrote the state, the last one last.
        codec: Decodes the values of typed columns.

    Raises:
        ConfigurationError: ``folder`` is not empty.
    """

    def __init__(self, folder: Folder, programs: Sequence[Description], codec: Codec) -> None:
        check_unused(folder)
        self._folder = folder
        self._programs = programs
        self._codec = codec
        self._tables: list[SavepointTable] = []
        self._files: dict[str, SavepointFile] = {}

    def write(self, rows: Iterable[tuple[str, StateRow]]) -> None:
        """Write the state of all operators. Called once with the rows and their uids, in any order."""
        by_table: dict[TableId, list[StateRow]] = {}
        for uid, row in rows:
            by_table.setdefault(TableId.of(uid, row.kind, row.state), []).append(row)
        for table, folder in folders_of(by_table).items():
            self._write_table(table, folder, by_table[table])

    def _write_table(self, table_id: TableId, folder: str, rows: Sequence[StateRow]) -> None:
        table = SavepointTable.of(table_id, folder, rows[0], self._programs[-1], self._codec)
        self._tables.append(table)
        for number, data in enumerate(parquet_files(table, rows, self._codec)):
            file = f"{folder}/part-{number:05}.parquet"
            self._folder.write(file, data)
            self._files[file] = SavepointFile(len(data), sha256(data).hexdigest())

    def finish(
        self,
        origin: Origin,
        sources: Mapping[str, SourcePosition],
        sinks: Mapping[str, JsonObject],
        fields: Mapping[str, Sequence[str]],
        holding: Sequence[str] = (),
        replays: Replays | None = None,
    ) -> SavepointInfo:
        """Write the description (see ``SavepointInfo``) and return it. ``sinks``: The result of ``describe_sinks``."""
        tables, files = self._tables, self._files
        info = SavepointInfo(
            str(uuid4()),
            origin,
            self._programs,
            tables,
            sources,
            sink_positions(sinks, origin),
            files,
            fields=fields,
            holding=list(holding),
            replays=replays or Replays(),
        )
        write_info(self._folder, info)
        return info
