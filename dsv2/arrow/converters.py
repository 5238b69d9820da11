"""Serializes columnar records and timestamps for frames and state."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from dsv2.arrow.encoding import from_bytes, narrowed, to_bytes, widened
from dsv2.arrow.records import ArrowRecords, ArrowWholeNumbers
from dsv2.arrow.schema import schema_of
from dsv2.errors import CorruptDataError
from dsv2.runtime.serde.values import Converter

_WHOLE = ("<i8", "|u1", "<u2", "<u4")


def of_columns() -> dict[type, Converter]:
    """Return the converters of columnar records and numbers. Called when the first is written or read."""
    return {
        ArrowRecords: Converter("columns.ArrowRecords", _of_records, _to_records),
        ArrowWholeNumbers: Converter("columns.ArrowWholeNumbers", _of_numbers, _to_numbers),
    }


def _of_records(records: ArrowRecords[Any]) -> Any:
    return records.kind, *to_bytes(records.table)


def _to_records(parts: Any) -> ArrowRecords[Any]:
    kind, data, size, narrow = parts
    if not isinstance(kind, type) or any(how is not None and how[0] not in _WHOLE for how in narrow):
        raise CorruptDataError("Columnar records must consist of a class and its columns.")
    return ArrowRecords(from_bytes(schema_of(kind), data, size, narrow), kind)


def _of_numbers(numbers: ArrowWholeNumbers) -> Any:
    narrow, least = narrowed(numbers.array.to_numpy())
    return narrow.tobytes(), narrow.dtype.str, least


def _to_numbers(parts: Any) -> ArrowWholeNumbers:
    data, kind, least = parts
    if kind not in _WHOLE:
        raise CorruptDataError(f"{kind!r} is not an integer type.")
    return ArrowWholeNumbers(pa.array(widened(np.frombuffer(data, kind), least)))
