"""Decodes batches of Arrow to columns of records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import UTC
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.record_position import Offset
from dsv2.base.type_variables import T
from dsv2.connectors.files.format import Unreadable
from dsv2.connectors.files.python_values import python_values
from dsv2.sources import SplitBatch

if TYPE_CHECKING:
    import pyarrow as pa


class RecordDecoder(Generic[T]):
    """Decodes batches to columns of records. Values are dicts by column name only where the error policy requires them.

    Args:
        kind: The class of the records.
        zoned: Columns of instants. Their values are datetimes in UTC, so all records become rows.
    """

    def __init__(self, kind: type[T], zoned: Sequence[str] = ()) -> None:
        self._kind = kind
        self._zoned = zoned

    def of_row(self, row: dict[str, Any]) -> T:
        """Decode a row."""
        import pyarrow as pa

        return self._records(pa.Table.from_pylist([row]))[0]

    def batch(self, batch: pa.RecordBatch, numbers: range, offsets: Callable[[], Sequence[Offset]]) -> SplitBatch[T]:
        """Return the values of a batch, which are decoded together if they can be.

        Args:
            batch: The batch.
            numbers: The numbers of its rows, for errors.
            offsets: Returns the offsets of its rows.
        """
        import pyarrow as pa

        table = pa.Table.from_batches([batch])

        def raw(index: int) -> object:
            row = raw_row(batch.slice(index, 1), numbers[index])
            return row.raw if isinstance(row, Unreadable) else row

        return SplitBatch(
            range(len(batch)),
            lambda index: self._records(table.slice(index, 1))[0],
            offsets=offsets,
            raw=raw,
            decode_all=lambda: self._records(table),
        )

    def _records(self, table: pa.Table) -> Sequence[T]:
        import pyarrow as pa

        for name in self._zoned:
            place = table.schema.get_field_index(name)
            table = table.set_column(place, name, table.column(place).cast(pa.timestamp("us")))
        records: Sequence[T] = import_module("dsv2.arrow").records_of(table, self._kind)
        return [self._with_zones(record) for record in records] if self._zoned else records

    def _with_zones(self, record: Any) -> T:
        times = ((name, getattr(record, name)) for name in self._zoned)
        changed = {name: time.replace(tzinfo=UTC) for name, time in times if time is not None}
        replace = record._replace if hasattr(record, "_replace") else partial(dataclasses.replace, record)
        zoned: T = replace(**changed)
        return zoned


def raw_row(batch: pa.RecordBatch, number: int) -> dict[str, Any] | Unreadable:
    """Return the only row of ``batch``, by column name; ``Unreadable`` if Python does not have one of its values."""
    row: dict[str, Any] = {}
    reason = ""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            (row[name],) = python_values(column)
        except (OverflowError, ValueError) as error:
            row[name] = str(column)
            reason = f"row {number}, column {name!r}: Python has no such value of {column.type}: {error}"
    return Unreadable(str(row), reason) if reason else row
