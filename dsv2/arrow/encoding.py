"""Tables as bytes: a stream in Arrow's own format, compressed, with whole numbers in as few bytes as they need.

Frames are copied many times on their way, mostly by the JVM; and keys, times and counts are small, or near each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

__all__ = ("Numbers", "from_bytes", "narrowed", "to_bytes", "widened")

Numbers: TypeAlias = np.ndarray[Any, Any]

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4" if pa.Codec.is_available("lz4") else None)
_NARROW = tuple((1 << 8 * np.dtype(kind).itemsize, kind) for kind in ("<u1", "<u2", "<u4"))


def to_bytes(table: pa.Table) -> tuple[bytes, tuple[int | None, ...]]:
    """The bytes of ``table``, and for each column what has been taken off its numbers; None if it is as it was."""
    columns, taken_off = [], []
    for column in table.columns:
        least = None
        if pa.types.is_int64(column.type) and not column.null_count:
            numbers, least = narrowed(column.to_numpy())
            column = pa.array(numbers)
        columns.append(column)
        taken_off.append(least)
    narrow = pa.table(columns, table.schema.names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, narrow.schema, options=_OPTIONS) as writer:
        writer.write_table(narrow)
    return sink.getvalue().to_pybytes(), tuple(taken_off)


def from_bytes(data: bytes, taken_off: Sequence[int | None]) -> pa.Table:
    """The table of ``to_bytes``."""
    with pa.ipc.open_stream(data) as reader:
        narrow = reader.read_all()
    columns = [
        column if least is None else pa.array(widened(column.to_numpy(), least))
        for column, least in zip(narrow.columns, taken_off, strict=True)
    ]
    return pa.table(columns, narrow.schema.names)


def narrowed(numbers: Numbers) -> tuple[Numbers, int]:
    """``numbers``, 64 bits each, less the least of them, in as few bytes as the rest needs; and the least, or 0."""
    if not len(numbers):
        return numbers, 0
    least = int(numbers.min())
    spread = int(numbers.max()) - least
    for limit, kind in _NARROW:
        if spread < limit:
            return (numbers - least).astype(kind), least
    return numbers, 0


def widened(numbers: Numbers, least: int) -> Numbers:
    """The numbers of ``narrowed``."""
    if numbers.dtype == np.int64:
        return numbers
    wide: Numbers = numbers.astype(np.int64)
    wide += least
    return wide
