"""Writes a savepoint to a folder."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import count, islice
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec import structs

from dsv2.base.folders import Folder
from dsv2.checkpoint.program import ProgramDescription
from dsv2.checks.client_library import require_client_library
from dsv2.errors import ConfigurationError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.metadata import SavepointFile, SavepointInfo, write_info
from dsv2.savepoint.tables import SavepointTable, TableId

if TYPE_CHECKING:
    import pyarrow.parquet as pq


_ROWS_AT_ONCE = 1 << 14
_ROWS_PER_FILE = 1 << 20


def check_unused(folder: Folder) -> None:
    """Raise ``ConfigurationError`` if the folder of a new savepoint is a file, or exists and is not empty."""
    try:
        is_used = bool(folder.sizes())
    except NotADirectoryError as error:
        raise ConfigurationError(f"{folder.path} is a file. A savepoint needs a folder of its own.") from error
    require_client_library("pyarrow", "files", "A savepoint")
    if is_used:
        raise ConfigurationError(f"{folder.path} is not empty. A savepoint needs a folder of its own.")


def write_savepoint(
    folder: Folder, info: SavepointInfo, rows: Iterable[tuple[str, StateRow]], codec: Codec
) -> SavepointInfo:
    """Write a savepoint whose state fits in the memory of one process, and return its description.

    Args:
        folder: Where to write. Must be empty.
        info: The description, without id, tables and files.
        rows: The state of all operators, each row with the uid of its operator, in any order.
        codec: Decodes the values of typed columns.

    Raises:
        ConfigurationError: ``folder`` is not empty.
    """
    check_unused(folder)
    tables = SavepointTableWriter(folder, info.program, codec)
    by_table = _by_table(rows)
    for table in sorted(by_table, key=lambda table: (table.uid, table.kind, table.state or "")):
        tables.add((table.uid, row) for row in by_table[table])
    return tables.finish(info)


def _by_table(rows: Iterable[tuple[str, StateRow]]) -> dict[TableId, list[StateRow]]:
    found: dict[TableId, list[StateRow]] = {}
    for uid, row in rows:
        found.setdefault(TableId.of(uid, row.kind, row.state), []).append(row)
    return found


class SavepointTableWriter:
    """Writes the tables of a savepoint. Memory is bounded by a file of each table that is open.

    Args:
        folder: The savepoint.
        program: The last program, which has the types of states.
        codec: Decodes the values of typed columns.
    """

    def __init__(self, folder: Folder, program: ProgramDescription, codec: Codec) -> None:
        self._folder = folder
        self._program = program
        self._codec = codec
        self._tables: dict[TableId, SavepointTable] = {}
        self._numbers = count()
        self._open: dict[TableId, _ParquetFile] = {}
        self._written: dict[str, SavepointFile] = {}
        self._parts: dict[TableId, Iterator[int]] = {}

    def add(self, rows: Iterable[tuple[str, StateRow]]) -> None:
        """Add the rows of one table, which may have become rows of others."""
        left = iter(rows)
        while some := list(islice(left, _ROWS_AT_ONCE)):
            for table, of_table in _by_table(some).items():
                self._add_to(table, of_table)
        for table in list(self._open):
            self._finish(table)

    def copy(self, table: SavepointTable, contents: Iterable[bytes]) -> None:
        """Copy the files of a table in which at most the name of the operator has changed."""
        found = self._table(table.id, lambda folder: replace(table, folder=folder))
        for data in contents:
            self._write(found, data)

    def finish(self, info: SavepointInfo) -> SavepointInfo:
        """Write the description of a new savepoint, which is ``info`` with an id, these tables and their files."""
        info = structs.replace(info, savepoint_id=str(uuid4()), tables=list(self._tables.values()), files=self._written)
        write_info(self._folder, info)
        return info

    def _add_to(self, table_id: TableId, rows: Sequence[StateRow]) -> None:
        table = self._table(
            table_id, lambda folder: SavepointTable.of(table_id, folder, rows[0], self._program, self._codec)
        )
        file = self._open.get(table_id)
        if file is None:
            file = self._open[table_id] = _ParquetFile(table)
        file.add(rows, self._codec)
        if file.rows >= _ROWS_PER_FILE:
            self._finish(table_id)

    def _table(self, table: TableId, make: Callable[[str], SavepointTable]) -> SavepointTable:
        if table not in self._tables:
            self._tables[table] = make(f"state/{table.folder(next(self._numbers))}")
            self._parts[table] = count()
        return self._tables[table]

    def _finish(self, table: TableId) -> None:
        self._write(self._tables[table], self._open.pop(table).finish())

    def _write(self, table: SavepointTable, data: bytes) -> None:
        name = f"{table.folder}/part-{next(self._parts[table.id]):05}.parquet"
        self._folder.write(name, data)
        self._written[name] = SavepointFile(len(data), sha256(data).hexdigest())


class _ParquetFile:
    """A Parquet file that is being written."""

    def __init__(self, table: SavepointTable) -> None:
        import pyarrow.parquet as pq

        self._table = table
        self._data = io.BytesIO()
        self._writer: pq.ParquetWriter = pq.ParquetWriter(self._data, table.schema(), compression="zstd")
        self.rows = 0

    def add(self, rows: Sequence[StateRow], codec: Codec) -> None:
        """Add rows."""
        self._writer.write_batch(self._table.batch(rows, codec))
        self.rows += len(rows)

    def finish(self) -> bytes:
        """Return the content of the file."""
        self._writer.close()
        return self._data.getvalue()
