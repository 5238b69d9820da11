"""Converts Arrow tables of records to batches of a Spark schema, column by column."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def batch_of(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch | None:
    """Return ``table`` with the columns of ``schema``, matched by name; None if records must be converted one by one.

    That conversion gives the same values, and finds the record that does not fit.
    """
    if not set(schema.names) <= set(table.schema.names):
        return None
    columns = [_fitted(table.column(field.name), field) for field in schema]
    if any(column is None for column in columns):
        return None
    return pa.table(columns, schema).combine_chunks().to_batches()[0]


def _fitted(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray | None:
    if column.null_count and not field.nullable:
        return None
    kind = field.type
    if pa.types.is_nested(kind):
        return None  # may contain a nested None
    if column.type == kind:
        return column
    try:
        if pa.types.is_integer(column.type) and pa.types.is_integer(kind):
            return column.cast(kind)
        if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(kind) and column.type.tz is None:
            return pc.assume_timezone(column, kind.tz)  # fails for ambiguous and nonexistent times
    except pa.ArrowInvalid:
        return None
    return None
