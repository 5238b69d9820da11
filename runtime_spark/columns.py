"""Tables of records as batches of a schema of Spark's, where the columns fit as they are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ("batch_of",)


def batch_of(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch | None:
    """``table`` with the columns of ``schema``, by name; None if single records have to be looked at.

    Those go other ways to the same values, and find out which one it is that does not fit.
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
        return None  # may have a None deep within
    if column.type == kind:
        return column
    try:
        if pa.types.is_integer(column.type) and pa.types.is_integer(kind):
            return column.cast(kind)
        if pa.types.is_timestamp(column.type) and pa.types.is_timestamp(kind) and column.type.tz is None:
            return pc.assume_timezone(column, kind.tz)  # refuses hours that the clock shows twice, or never
    except pa.ArrowInvalid:
        return None
    return None
