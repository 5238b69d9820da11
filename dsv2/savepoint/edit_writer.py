"""Writes an edited savepoint in this process. Memory is bounded by a file of each table that is open."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import count, islice
from typing import TYPE_CHECKING
from uuid import uuid4

from dsv2.errors import ConfigurationError
from dsv2.folders import Folder
from dsv2.program.description import Description
from dsv2.program.folder_kinds import SAVEPOINT_FILE
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.stand_ins import StandIns
from dsv2.runtime.state.rows import StateRow
from dsv2.savepoint.draft import Draft
from dsv2.savepoint.given_state import local_values
from dsv2.savepoint.metadata import SavepointFile, write_info
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.row_edits import Edit, edit_rows
from dsv2.savepoint.tables import SavepointTable, TableId, rows_in
from dsv2.savepoint.writer import check_unused

if TYPE_CHECKING:
    import pyarrow.parquet as pq

__all__ = ("check_new_folder", "remove_unfinished", "write_edited")

_ROWS_AT_ONCE = 1 << 14
_ROWS_PER_FILE = 1 << 20


def write_edited(folder: Folder, draft: Draft) -> None:
    """Write a savepoint.

    Args:
        folder: Where to write. Must be empty.
        draft: What to write.

    Raises:
        ConfigurationError: ``folder`` is in use, or a given value does not fit.
        CorruptDataError: A file of the original is damaged; names it.
        JobError: A function of the user failed.
    """
    check_new_folder(folder, draft)
    files, original = _Files(folder, draft.info.program), draft.original
    try:
        if original is not None:
            for table in original.info.tables:
                _write_table(files, original, table, draft.edits)
        for given in draft.given:
            edit = edit_rows(draft.edits[given.after :])
            rows = given.state.rows(local_values(given.state, given.data))
            files.add(edited for row in rows if (edited := edit(given.state.uid, row)) is not None)
        for replay in draft.replays:
            edit = edit_rows(draft.edits[replay.after :])
            files.add(edited for uid, row in replay.rows if (edited := edit(uid, row)) is not None)
        tables, written = files.finish()
        write_info(folder, replace(draft.info, savepoint_id=str(uuid4()), tables=tables, files=written))
    except BaseException:
        remove_unfinished(folder)
        raise


def check_new_folder(folder: Folder, draft: Draft) -> None:
    """Raise ``ConfigurationError`` if the folder of an edited savepoint is in use, or in that of the original."""
    if draft.original is not None and f"{folder.path}/".startswith(f"{draft.original.folder.path}/"):
        raise ConfigurationError(f"{folder.path} is in the folder of the original savepoint, which must not change.")
    check_unused(folder)


def remove_unfinished(folder: Folder) -> None:
    """Remove what a failed edit has written."""
    folder.delete(SAVEPOINT_FILE)
    folder.remove("state")


def _write_table(files: _Files, original: SavepointReader, table: SavepointTable, edits: Sequence[Edit]) -> None:
    becomes: TableId | None = table.id
    for edit in edits:
        if becomes is None:
            return
        if edit.touches(becomes):
            change = edit_rows(edits)
            for name, data in original.contents(table):
                rows = ((table.id.uid, row) for row in rows_in(data, name))
                files.add(edited for row in rows if (edited := change(*row)) is not None)
            return
        becomes = edit.moved(becomes)
    if becomes is not None:
        files.copy(replace(table, id=becomes), (data for _, data in original.contents(table)))


class _Files:
    """The files of a savepoint.

    Args:
        folder: The savepoint.
        program: The last program, which has the types of states.
    """

    def __init__(self, folder: Folder, program: Description) -> None:
        self._folder = folder
        self._program = program
        self._codec = Codec(StandIns())
        self._tables: dict[TableId, SavepointTable] = {}
        self._numbers = count()
        self._open: dict[TableId, _File] = {}
        self._written: dict[str, SavepointFile] = {}
        self._parts: dict[TableId, Iterator[int]] = {}

    def add(self, rows: Iterable[tuple[str, StateRow]]) -> None:
        """Add the rows of one table, which may have become rows of others."""
        left = iter(rows)
        while some := list(islice(left, _ROWS_AT_ONCE)):
            by_table: dict[TableId, list[StateRow]] = {}
            for uid, row in some:
                by_table.setdefault(TableId.of(uid, row.kind, row.state), []).append(row)
            for table, of_table in by_table.items():
                self._add_to(table, of_table)
        for table in list(self._open):
            self._finish(table)

    def copy(self, table: SavepointTable, contents: Iterable[bytes]) -> None:
        """Copy the files of a table that has not changed, apart from the name of its operator."""
        found = self._table(table.id, lambda folder: replace(table, folder=folder))
        for data in contents:
            self._write(found, data)

    def finish(self) -> tuple[list[SavepointTable], dict[str, SavepointFile]]:
        """Return the tables and the files by name."""
        return list(self._tables.values()), self._written

    def _add_to(self, table_id: TableId, rows: Sequence[StateRow]) -> None:
        table = self._table(
            table_id, lambda folder: SavepointTable.of(table_id, folder, rows[0], self._program, self._codec)
        )
        file = self._open.get(table_id)
        if file is None:
            file = self._open[table_id] = _File(table)
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


class _File:
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
