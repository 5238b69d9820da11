"""Columns of records as data of ``COPY``, which PostgreSQL reads into a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from dsv2.arrow.records import ArrowRecords

_WHOLE = {"int2": 1 << 15, "int4": 1 << 31, "int8": 1 << 63}
_UNKEPT = r"\x00|\\\."
"""NUL, which the server refuses, and what could end the data."""
_SAME = {
    ("bool", "bool"),
    ("double", "float8"),
    ("date32[day]", "date"),
    ("timestamp[us]", "timestamp"),
    ("decimal128(38, 18)", "numeric"),
}


def copy_data(records: ArrowRecords[Any], names: Sequence[str], types: Sequence[tuple[str, int]]) -> bytes | None:
    """Return records as CSV in UTF-8; None if they must be converted one by one.

    That conversion writes the same values, and finds the record that does not fit.

    Args:
        records: The records.
        names: The fields to write.
        types: The name of the type of their columns in the server, and the modifier of the type (-1: none).
    """
    if not set(names) <= set(records.table.schema.names):
        return None
    table = records.table.select(names)
    if not all(_is_kept(column, *kind) for column, kind in zip(table.columns, types, strict=True)):
        return None
    target = pa.BufferOutputStream()
    pa_csv.write_csv(table, target, pa_csv.WriteOptions(include_header=False, quoting_style="needed"))
    return bytes(target.getvalue())


def _is_kept(column: pa.ChunkedArray, name: str, modifier: int) -> bool:
    """Return whether the column of the server keeps each value."""
    if pa.types.is_string(column.type):
        if name not in ("text", "varchar") or pc.any(pc.match_substring_regex(column, _UNKEPT)).as_py():
            return False
        return modifier < 0 or (pc.max(pc.utf8_length(column)).as_py() or 0) <= modifier - 4
    if pa.types.is_int64(column.type) and name in _WHOLE:
        found = pc.min_max(column).as_py()
        return found["min"] is None or -_WHOLE[name] <= found["min"] <= found["max"] < _WHOLE[name]
    return modifier < 0 and (str(column.type), name) in _SAME
