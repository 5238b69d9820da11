"""The state of operators as tables in Parquet files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from dsv2.errors import CorruptDataError
from dsv2.runtime.state.rows import RowKind, StateRow

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ("COLUMNS", "TableId", "parquet_files", "row_schema", "rows_in")

COLUMNS = ("subtask", "kind", "state", "key_bytes", "value_bytes")
"""The columns of every table, the fields of ``StateRow``. Tables with typed columns have ``key`` and ``value`` too."""

_ROWS_PER_FILE = 1 << 20
_ROWS_PER_BATCH = 1 << 15
_OF_ONE_STATE = (RowKind.KEYED, RowKind.EXPIRING, RowKind.SUBTASK_STATE)


@dataclass(frozen=True, slots=True)
class TableId:
    """Identifies a table: the rows of one kind of one operator, and of one state if the state has a declared type."""

    uid: str
    kind: str
    state: str | None

    @staticmethod
    def of(uid: str, kind: RowKind, state: str | None) -> TableId:
        """Return the table of a row."""
        return TableId(uid, kind.value, state if kind in _OF_ONE_STATE else None)

    def folder(self, number: int) -> str:
        """Return the name of a folder for the table. ``number`` makes it unique.

        The rest is for readers: uids and names may contain anything, which paths may not.
        """
        parts = filter(None, (self.uid, self.kind, self.state))
        return f"{number:04}-" + "-".join(re.sub(r"[^a-zA-Z0-9]+", "_", part)[:40] for part in parts)


def row_schema() -> pa.Schema:
    """Return the Arrow schema of the files."""
    import pyarrow as pa

    types = (pa.int32(), pa.string(), pa.string(), pa.binary(), pa.binary())
    return pa.schema(list(zip(COLUMNS, types, strict=True)))


def parquet_files(rows: Iterable[StateRow]) -> Iterator[bytes]:
    """Yield the contents of Parquet files with ``rows``. Memory is bounded by one file."""
    import pyarrow.parquet as pq

    schema, left = row_schema(), iter(rows)
    while some := list(islice(left, _ROWS_PER_BATCH)):
        data = io.BytesIO()
        written = 0
        with pq.ParquetWriter(data, schema, compression="zstd") as writer:
            while some:
                writer.write_batch(_batch(some, schema))
                written += len(some)
                some = list(islice(left, _ROWS_PER_BATCH)) if written < _ROWS_PER_FILE else []
        yield data.getvalue()


def _batch(rows: Sequence[StateRow], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def rows_in(data: bytes, name: str) -> Iterator[StateRow]:
    """Return the rows in a Parquet file.

    Args:
        data: The content of the file.
        name: The file, for errors.

    Raises:
        CorruptDataError: The file is not one that ``parquet_files`` made.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(pa.BufferReader(data)) as file:
            for batch in file.iter_batches(_ROWS_PER_BATCH, columns=list(COLUMNS)):
                subtasks, kinds, *others = (column.to_pylist() for column in batch.columns)
                yield from map(StateRow, subtasks, map(RowKind, kinds), *others)
    except (pa.ArrowException, KeyError, ValueError) as error:
        raise CorruptDataError(f"{name} is damaged: {error}. Restore the savepoint from a backup.") from error
