"""Records as Arrow tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import compress, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.hashing import subtasks_of
from dsv2.arrow.schema import fitted, rows_to_table, table_to_rows
from dsv2.base.columnar import Columnar, ComputedKey, WholeNumbers, fields_read
from dsv2.base.type_variables import T
from dsv2.model.record_batch import RecordBatch


class ArrowWholeNumbers(WholeNumbers):
    """An ``int64`` column in one array."""

    def __init__(self, array: pa.Int64Array) -> None:
        self.array = array

    @property
    def greatest(self) -> int:
        greatest: int = pc.max(self.array).as_py()
        return greatest

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ArrowWholeNumbers(_sliced(self.array, index))
        return self.array[index].as_py()

    def __iter__(self) -> Iterator[int]:
        return iter(self.array.to_pylist())

    def joined(self, more: Sequence[ArrowWholeNumbers]) -> ArrowWholeNumbers:
        return ArrowWholeNumbers(pa.concat_arrays([self.array, *(numbers.array for numbers in more)]))


class ArrowRecords(Columnar[T]):
    """Records of ``kind``, a NamedTuple class or dataclass, stored in a ``table`` with the schema of the class."""

    def __init__(self, table: pa.Table, kind: type[T]) -> None:
        self.table = table
        self.kind = kind
        self._rows: list[T] | None = None

    @property
    def kept_bytes(self) -> int:
        size: int = self.table.get_total_buffer_size()
        return size

    def __len__(self) -> int:
        size: int = self.table.num_rows
        return size

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ArrowRecords(_sliced(self.table, index), self.kind)
        if self._rows is not None:
            return self._rows[index]
        return table_to_rows(self.table.slice(range(len(self))[index], 1), self.kind)[0]

    def __iter__(self) -> Iterator[T]:
        return iter(self.rows())

    def __repr__(self) -> str:
        first = f", first: {self[0]!r}" if len(self) else ""
        return f"{len(self)} records of {self.kind.__qualname__}{first}"

    def joined(self, more: Sequence[ArrowRecords[T]]) -> ArrowRecords[T]:
        return ArrowRecords(pa.concat_tables([self.table, *(records.table for records in more)]), self.kind)

    def rows(self) -> list[T]:
        if self._rows is None:
            self._rows = table_to_rows(self.table, self.kind)
        return self._rows

    def whole_numbers(self, name: str) -> ArrowWholeNumbers | None:
        place = self.table.schema.get_field_index(name)
        if place < 0 or not len(self):
            return None
        column = self.table.column(place)
        if column.null_count or not pa.types.is_int64(column.type):
            return None
        return ArrowWholeNumbers(in_one_piece(column))

    def split(
        self, names: Sequence[str], max_parallelism: int, parallelism: int, timestamps: Sequence[int | None] | None
    ) -> Iterable[tuple[int, ArrowRecords[T], Sequence[int | None] | None]] | None:
        if any(name not in self.table.schema.names for name in fields_read(names)):
            return None
        columns = [in_one_piece(column) for column in keys_of(self.table, names)]
        subtasks = subtasks_of(columns, max_parallelism, parallelism)  # also checks the keys
        return [(0, self, timestamps)] if parallelism == 1 else self._parts(subtasks, parallelism, timestamps)

    def _parts(
        self, subtasks: Numbers, parallelism: int, timestamps: Sequence[int | None] | None
    ) -> Iterator[tuple[int, ArrowRecords[T], Sequence[int | None] | None]]:
        order = np.argsort(subtasks, kind="stable")  # stable, to keep the order of records within a channel
        bounds = np.searchsorted(subtasks[order], np.arange(parallelism + 1)).tolist()
        for subtask, (start, stop) in enumerate(pairwise(bounds)):
            if stop > start:  # take copies; a slice would keep the whole table alive
                indices = pa.array(order[start:stop])
                yield subtask, ArrowRecords(self.table.take(indices), self.kind), taken_times(timestamps, indices)


def records_of(table: pa.Table, kind: type[T]) -> ArrowRecords[T]:
    """Return the rows of ``table`` as columnar records, without creating record objects.

    A source reader passes the result to ``RecordBatch``.

    Args:
        table: A table with the columns of the class, in any order. Other columns are dropped. Types are cast if that
            keeps each value and its meaning, such as int32 to int64.
        kind: The record class, a NamedTuple class or dataclass.

    Raises:
        SchemaError: The table does not match the class.
    """
    return ArrowRecords(fitted(table, kind), kind)


def table_of(records: Sequence[Any], kind: type, names: Collection[str] | None = None) -> pa.Table:
    """Return ``records`` of class ``kind`` as a table, without copying if they are columnar.

    Args:
        records: The records.
        kind: Their class.
        names: The fields that must be columns; others may be. None: all.

    Raises:
        SchemaError: A record does not match the class.
    """
    if isinstance(records, ArrowRecords) and records.kind is kind:
        return records.table
    return rows_to_table(records, kind, names)


def keys_of(table: pa.Table, names: Sequence[str]) -> list[pa.ChunkedArray]:
    """Return the key columns with these names. Those of a ``ComputedKey`` are computed."""
    return names.columns_of(table) if isinstance(names, ComputedKey) else [table[name] for name in names]


def chosen_records(batch: RecordBatch[T], chosen: pa.BooleanArray) -> RecordBatch[T]:
    """Return the records for which ``chosen`` is true, with their timestamps. Null is not true."""
    records, timestamps = batch.records, batch.timestamps
    if isinstance(records, ArrowRecords):
        records = ArrowRecords(records.table.filter(chosen), records.kind)
    else:
        records = list(compress(records, chosen.to_pylist()))  # they may be of a subclass
    if isinstance(timestamps, ArrowWholeNumbers):
        return RecordBatch(records, ArrowWholeNumbers(timestamps.array.filter(chosen)))
    return RecordBatch(records, None if timestamps is None else list(compress(timestamps, chosen.to_pylist())))


def _sliced(data: Any, index: slice) -> Any:
    start, stop, step = index.indices(len(data))
    if step == 1:
        return data.slice(start, max(0, stop - start))
    return data.take(pa.array(np.arange(start, stop, step)))


def taken_times(timestamps: Sequence[int | None] | None, indices: pa.Array) -> Sequence[int | None] | None:
    """Return the timestamps at ``indices``; None if there are none."""
    if timestamps is None:
        return None
    if isinstance(timestamps, ArrowWholeNumbers):
        return ArrowWholeNumbers(timestamps.array.take(indices))
    return [timestamps[index] for index in indices.to_pylist()]
