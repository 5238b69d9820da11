"""Tables as bytes: a message of Arrow's own format, compressed, with whole numbers in as few bytes as they need.

Frames are copied many times on their way, mostly by the JVM; and keys, times and counts are small, or near each other.
A stream in that format would name the columns, too, which takes longer than a small frame itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dsv2.errors import CorruptDataError

__all__ = ("Narrow", "Numbers", "from_bytes", "in_one_piece", "narrowed", "to_bytes", "widened")

Numbers: TypeAlias = np.ndarray[Any, Any]
Narrow: TypeAlias = tuple[str, int] | None
"""Of a column of whole numbers: its type in numpy, and what has been taken off its numbers; None if it is as it was."""

_CODEC = pa.Codec("lz4")
_MOST_COMPRESSED = 255  # what lz4 can do at best
_NARROW = tuple((1 << 8 * np.dtype(kind).itemsize, kind) for kind in ("<u1", "<u2", "<u4"))


def to_bytes(table: pa.Table) -> tuple[bytes, int, tuple[Narrow, ...]]:
    """The rows of ``table``: the bytes, how many they are when they are not compressed, and how columns are narrow."""
    columns, narrow = zip(*map(_narrowed_column, table.columns), strict=True)
    message = pa.RecordBatch.from_arrays(list(columns), table.schema.names).serialize()
    return _CODEC.compress(message, asbytes=True), message.size, narrow


def from_bytes(schema: pa.Schema, data: bytes, size: int, narrow: Sequence[Narrow]) -> pa.Table:
    """The table of ``to_bytes``, which has ``schema``. Raises ``CorruptDataError``, or an error of Arrow."""
    kinds = [
        field.type if how is None else pa.from_numpy_dtype(how[0]) for field, how in zip(schema, narrow, strict=True)
    ]
    if not 0 <= size <= _MOST_COMPRESSED * len(data):
        raise CorruptDataError(f"{len(data)} bytes of a table cannot be {size} bytes.")
    message = _CODEC.decompress(data, size)
    batch = pa.ipc.read_record_batch(message, pa.schema(zip(schema.names, kinds, strict=True)))
    batch.validate(full=True)
    columns = [
        column if how is None else pa.array(widened(column.to_numpy(), how[1]))
        for column, how in zip(batch.columns, narrow, strict=True)
    ]
    return pa.table(columns, schema)


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """The column, copied only if it is in several."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _narrowed_column(column: pa.ChunkedArray) -> tuple[pa.Array, Narrow]:
    if column.null_count or not pa.types.is_int64(column.type):
        return in_one_piece(column), None
    numbers, least = narrowed(column.to_numpy())
    return pa.array(numbers), (numbers.dtype.str, least)


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
