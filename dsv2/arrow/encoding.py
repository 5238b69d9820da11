"""Tables as bytes: a compressed Arrow IPC message, with integers in as few bytes as possible.

Frames are copied many times, mostly by the JVM, and keys, times and counts are small or close to each other. An Arrow
stream would repeat the schema, which takes longer to encode than a small frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dsv2.errors import CorruptDataError

Numbers: TypeAlias = np.ndarray[Any, Any]
Narrow: TypeAlias = tuple[str, int] | None
"""The narrowing of an integer column: its numpy type and the minimum that was subtracted; None if it is unchanged."""

_CODEC = pa.Codec("lz4")
_MOST_COMPRESSED = 255  # the best ratio that lz4 can reach
_NARROW = tuple((1 << 8 * np.dtype(kind).itemsize, kind) for kind in ("<u1", "<u2", "<u4"))


def to_bytes(table: pa.Table) -> tuple[bytes, int, tuple[Narrow, ...]]:
    """Encode ``table``.

    Returns:
        The compressed bytes, the uncompressed size in bytes, and how each column was narrowed.
    """
    columns, narrow = zip(*map(_narrowed_column, table.columns), strict=True)
    message = pa.RecordBatch.from_arrays(list(columns), table.schema.names).serialize()
    return _CODEC.compress(message, asbytes=True), message.size, narrow


def from_bytes(schema: pa.Schema, data: bytes, size: int, narrow: Sequence[Narrow]) -> pa.Table:
    """Decode the result of ``to_bytes`` for a table with ``schema``.

    Raises:
        CorruptDataError: The size is impossible. Other defects raise an Arrow exception.
    """
    kinds = [
        field.type if how is None else pa.from_numpy_dtype(how[0]) for field, how in zip(schema, narrow, strict=True)
    ]
    if not 0 <= size <= _MOST_COMPRESSED * len(data):
        raise CorruptDataError(f"{len(data)} compressed bytes of a table cannot expand to {size} bytes.")
    message = _CODEC.decompress(data, size)
    batch = pa.ipc.read_record_batch(message, pa.schema(zip(schema.names, kinds, strict=True)))
    batch.validate(full=True)
    columns = [
        column if how is None else pa.array(widened(column.to_numpy(), how[1]))
        for column, how in zip(batch.columns, narrow, strict=True)
    ]
    return pa.table(columns, schema)


def in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    """Return the column as one array, copied only if it has several chunks."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _narrowed_column(column: pa.ChunkedArray) -> tuple[pa.Array, Narrow]:
    if column.null_count or not pa.types.is_int64(column.type):
        return in_one_piece(column), None
    numbers, least = narrowed(column.to_numpy())
    return pa.array(numbers), (numbers.dtype.str, least)


def narrowed(numbers: Numbers) -> tuple[Numbers, int]:
    """Subtract the minimum from 64-bit ``numbers`` and use the narrowest type that fits.

    Returns:
        The narrowed numbers, and the minimum; or the same numbers and 0 if they do not fit a narrower type.
    """
    if not len(numbers):
        return numbers, 0
    least = int(numbers.min())
    spread = int(numbers.max()) - least
    for limit, kind in _NARROW:
        if spread < limit:
            return (numbers - least).astype(kind), least
    return numbers, 0


def widened(numbers: Numbers, least: int) -> Numbers:
    """Undo ``narrowed``."""
    if numbers.dtype == np.int64:
        return numbers
    wide: Numbers = numbers.astype(np.int64)
    wide += least
    return wide
