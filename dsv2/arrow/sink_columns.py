"""Columns of records in the schema of a sink, without conversion of single records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.records import ArrowRecords
from dsv2.model.record_batch import RecordBatch


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


def table_of_columns(
    batches: Sequence[RecordBatch[Any]], described: dict[str, Any], schema: pa.Schema
) -> pa.Table | None:
    """Return all records as one table; None if some are rows, or must be converted one by one.

    Args:
        batches: The records. They are not empty.
        described: The columns, as Spark writes them in JSON.
        schema: The same columns, all nullable.
    """
    if any(pa.types.is_timestamp(field.type) and field.type.tz is not None for field in schema):
        return None  # a datetime without time zone has that of the process, whose name is not known
    fields = zip(schema, described["fields"], strict=True)
    checked = pa.schema([field.with_nullable(one["nullable"]) for field, one in fields])
    found = []
    for records in (batch.records for batch in batches if len(batch)):
        batch = batch_of(records.table, checked) if isinstance(records, ArrowRecords) else None
        if batch is None:
            return None
        found.append(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return pa.Table.from_batches(found)


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
