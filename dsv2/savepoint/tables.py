"""The state of operators as tables in Parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dsv2.checkpoint.column_types import ColumnType, ListColumn, column_type_of_value
from dsv2.checkpoint.program import ProgramDescription
from dsv2.checks.client_library import require_client_library
from dsv2.errors import CorruptDataError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.migrations import split_name
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.columns import arrow_type, to_array

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


COLUMNS = ("subtask", "kind", "state", "key_bytes", "value_bytes")
"""The columns of every table: the fields of ``StateRow``. Typed columns follow, ``key`` and ``value``."""

_ROWS_PER_BATCH = 1 << 15


@dataclass(frozen=True, slots=True)
class TableId:
    """Identifies a table: the rows of one kind of one operator, and of one version of one state."""

    uid: str
    kind: RowKind
    state: str | None

    @staticmethod
    def of(uid: str, kind: RowKind, state: str | None) -> TableId:
        """Return the table of a row."""
        return TableId(uid, kind, state if kind.is_of_state else None)

    def folder(self, number: int) -> str:
        """Return the name of a folder for the table. ``number`` makes it unique.

        The rest is for readers: uids and names may contain anything, which paths may not.
        """
        parts = filter(None, (self.uid, self.kind, self.state))
        return f"{number:04}-" + "-".join(re.sub(r"[^a-zA-Z0-9]+", "_", part)[:40] for part in parts)


@dataclass(frozen=True, slots=True)
class SavepointTable:
    """A table of a savepoint.

    Attributes:
        id: What it holds.
        folder: The folder of its files, within the savepoint.
        key: The type of the column ``key``; None if there is none.
        value: The type of the column ``value``; None if there is none.
    """

    id: TableId
    folder: str
    key: ColumnType | None
    value: ColumnType | None

    @property
    def shown_columns(self) -> list[str]:
        """The columns for readers."""
        value = "value" if self.value is not None else "value_bytes"
        if self.id.kind == RowKind.SUBTASK_STATE:
            return ["subtask", value]
        key = "key" if self.key is not None else "key_bytes"
        return ["subtask", *(["state"] if self.id.kind == RowKind.TIMERS else []), key, value]

    def schema(self) -> pa.Schema:
        """Return the Arrow schema of the files."""
        import pyarrow as pa

        types = (pa.int32(), pa.string(), pa.string(), pa.binary(), pa.binary())
        typed = [(name, arrow_type(kind)) for name, kind in (("key", self.key), ("value", self.value)) if kind]
        return pa.schema([*zip(COLUMNS, types, strict=True), *typed])

    def batch(self, rows: Sequence[StateRow], codec: Codec) -> pa.RecordBatch:
        """Return ``rows`` of the table as Arrow columns. ``codec``: Decodes the values of typed columns."""
        import pyarrow as pa

        plain = pa.schema([self.schema().field(name) for name in COLUMNS])
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, plain, strict=True)]
        return self.typed(pa.RecordBatch.from_arrays(arrays, schema=plain), codec)

    def typed(self, rows: pa.RecordBatch, codec: Codec) -> pa.RecordBatch:
        """Add the typed columns to rows of the table, which have the columns ``COLUMNS``."""
        import pyarrow as pa

        schema, owner = self.schema(), f"State of {self.id.uid}"
        arrays = [rows.column(name).cast(schema.field(name).type) for name in COLUMNS]
        if self.key is not None:
            arrays.append(to_array((_decoded(key, codec, owner) for key in arrays[3].to_pylist()), self.key))
        if self.value is not None:
            values: Iterator[Any] = (_decoded(value, codec, owner) for value in arrays[4].to_pylist())
            if self.id.kind == RowKind.EXPIRING:
                values = map(without_expiry, values)
            arrays.append(to_array(values, self.value))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    @staticmethod
    def of(table: TableId, folder: str, first: StateRow, program: ProgramDescription, codec: Codec) -> SavepointTable:
        """Create a table.

        Args:
            table: What it holds.
            folder: The folder of its files.
            first: One of its rows. The type of keys is inferred from it, because it is not declared.
            program: The description of the program, which has the types of states.
            codec: Decodes the key.
        """
        key = None
        if first.key is not None:
            key = column_type_of_value(codec.loads(first.key, f"State of {table.uid}"))
        if table.kind == RowKind.TIMERS:
            return SavepointTable(table, folder, key, ListColumn("int64"))
        return SavepointTable(table, folder, key, _declared_column(table, program))


def _declared_column(table: TableId, program: ProgramDescription) -> ColumnType | None:
    """The column type of a state; None for values of an earlier version of it."""
    if table.state is None:
        return None
    name, version = split_name(table.state)
    state = program.states_of(table.uid).get(name)
    return state.column if state is not None and state.version == version else None


# Both read without threads: one of Arrow that still refers to ``data`` when Python ends would abort the process.


def table_in(data: bytes, name: str, columns: Sequence[str]) -> pa.Table:
    """Return columns of a Parquet file.

    Args:
        data: The content of the file.
        name: The file, for errors.
        columns: The names of the columns.

    Raises:
        CorruptDataError: The file is not one of a savepoint.
        ConfigurationError: pyarrow is not installed.
    """
    with _opened(data, name) as file:
        return file.read(list(columns), use_threads=False).select(list(columns))


def rows_in(data: bytes, name: str) -> Iterator[StateRow]:
    """Return the rows in a Parquet file.

    Args:
        data: The content of the file.
        name: The file, for errors.

    Raises:
        CorruptDataError: The file is not one of a savepoint.
        ConfigurationError: pyarrow is not installed.
    """
    with _opened(data, name) as file:
        for batch in file.iter_batches(_ROWS_PER_BATCH, columns=list(COLUMNS), use_threads=False):
            subtasks, kinds, *others = (column.to_pylist() for column in batch.columns)
            if None in subtasks or min(subtasks, default=0) < 0:
                raise ValueError("a row has no subtask")
            yield from map(StateRow, subtasks, map(RowKind, kinds), *others)


@contextmanager
def _opened(data: bytes, name: str) -> Iterator[pq.ParquetFile]:
    require_client_library("pyarrow", "files", "A savepoint")
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(pa.BufferReader(data), coerce_int96_timestamp_unit="us") as file:
            yield file
    except (pa.ArrowException, KeyError, OSError, ValueError) as error:
        text = str(error).rstrip(".")
        raise CorruptDataError(f"{name} is damaged: {text}. Restore the savepoint from a backup.") from error


def _decoded(data: bytes | None, codec: Codec, owner: str) -> Any:
    return None if data is None else codec.loads(data, owner)


def without_expiry(value: Any) -> Any:
    """A value of a state with time to live: a pair, a list of pairs, or a dict of pairs."""
    if isinstance(value, list):
        return [element for element, _ in value]
    if isinstance(value, dict):
        return {key: element for key, (element, _) in value.items()}
    return value[0]
