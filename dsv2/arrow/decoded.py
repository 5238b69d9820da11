"""Columnar records from the objects that a decoder creates, and for an encoder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.records import ArrowRecords, ArrowWholeNumbers
from dsv2.arrow.schema import rows_to_table, schema_of
from dsv2.errors import SchemaError
from dsv2.model.record_batch import RecordBatch


@cache
def keeps_values(kind: type) -> bool:
    """Return whether columns give back records of ``kind`` exactly as they were decoded. Decimals get more digits."""
    try:
        types = map(str, schema_of(kind).types)
    except SchemaError:
        return False
    return not hasattr(kind, "__post_init__") and not any("decimal" in name for name in types)


def batch_of(objects: Sequence[Any], kind: type, timestamps: Sequence[int | None] | None) -> RecordBatch[Any]:
    """Return columnar records of ``kind``.

    Args:
        objects: Objects with the fields of the records.
        kind: The class, which ``keeps_values``.
        timestamps: The event timestamps of the records in ms, if they have some.

    Raises:
        SchemaError, TypeError: Columns would change a value, or a timestamp is None.
    """
    records: ArrowRecords[Any] = ArrowRecords(rows_to_table(objects, kind), kind)
    times = None if timestamps is None else ArrowWholeNumbers(pa.array(np.array(timestamps, np.int64)))
    return RecordBatch(records, times)


def finite_columns(records: ArrowRecords[Any]) -> list[list[Any]] | None:
    """Return the values of each field. None: one is a list, or a float that is not finite."""
    for column in records.table.columns:
        if pa.types.is_nested(column.type):
            return None
        if pa.types.is_floating(column.type) and pc.all(pc.is_finite(column)).as_py() is False:
            return None
    return [column.to_pylist() for column in records.table.columns]
