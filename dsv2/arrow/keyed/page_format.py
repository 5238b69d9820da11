"""Encodes and decodes many pages of columns at once.

A page is some rows of a table. Its bytes are the number of rows (4 bytes, little-endian), the sizes of its parts (4
bytes each), and the parts. They are preceded by 0 (4 bytes), or if they are compressed with Zstandard, by their number.
Each column has these parts:

- the nulls: a byte for each row, 1 if the row has a value; empty if all have
- values of a fixed size; whole numbers without the least one, which precedes them, in 1, 2, 4 or 8 bytes
- texts and bytes: the lengths, and all bytes
- lists: the lengths, and the parts of a column of all elements
- structs: the parts of a column of each field

What is appended to a large page of lists is a page of its own: a *piece*. A page of several pieces begins with 2³²−1 (4
bytes), and the size of each piece (4 bytes) precedes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from struct import Struct
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from dsv2.arrow.encoding import Numbers
from dsv2.errors import CorruptDataError

_Part: TypeAlias = list[bytes]
"""A part of each page."""

_COMPRESSED_FROM = 1 << 14  # smaller pages gain little
_ZSTD = pa.Codec("zstd", 1)
_SIZE = Struct("<I")
_SEVERAL = b"\xff" * _SIZE.size
_LEAST = Struct("<q")
_WIDTHS: tuple[tuple[int, Any], ...] = ((1, np.uint8), (2, np.uint16), (4, np.uint32), (8, np.int64))
_LIMITS = np.array([1 << 8, 1 << 16, 1 << 32], np.uint64)


def encode_pages(columns: Sequence[pa.Array], bounds: Numbers) -> list[bytes]:
    """Encode the pages of a table.

    Args:
        columns: The columns, all of the same length.
        bounds: The first row of each page, and the number of rows.
    """
    parts = [part for column in columns for part in _parts(column, bounds)]
    head = Struct(f"<{len(parts) + 2}I")
    counts = np.diff(bounds).tolist()
    return [
        _compressed(b"".join((head.pack(0, count, *map(len, pieces)), *pieces)))
        for count, pieces in zip(counts, zip(*parts, strict=True), strict=True)
    ]


def pieces_of(page: bytes) -> list[bytes | memoryview]:
    """Return the pieces of a page, in the order in which they were appended. Raises ``CorruptDataError``."""
    if page[: _SIZE.size] != _SEVERAL:
        return [page]
    pieces: list[bytes | memoryview] = []
    rest = memoryview(page)[_SIZE.size :]
    while rest:
        size = _SIZE.size + (_SIZE.unpack_from(rest)[0] if len(rest) >= _SIZE.size else len(rest))
        if size > len(rest):
            raise CorruptDataError(f"A page of columns ends {size - len(rest)} bytes before its last piece.")
        pieces.append(rest[_SIZE.size : size])
        rest = rest[size:]
    return pieces


def with_piece(page: bytes, piece: bytes) -> bytes:
    """Return the page with another piece, which is a result of ``encode_pages``."""
    head = () if page[: _SIZE.size] == _SEVERAL else (_SEVERAL, _SIZE.pack(len(page)))
    return b"".join((*head, page, _SIZE.pack(len(piece)), piece))


def decode_pages(
    types: Sequence[pa.DataType], pages: Sequence[bytes | memoryview], first: int | None = None
) -> tuple[list[pa.Array], Numbers]:
    """Decode pages.

    Args:
        types: The types of the columns.
        pages: The results of ``encode_pages``.
        first: The number of columns that are decoded, from the first one. None: all.

    Returns:
        The columns with the rows of all pages, and the number of rows of each page.

    Raises:
        CorruptDataError: The bytes are damaged.
    """
    head = Struct(f"<{sum(map(_number_of_parts, types)) + 1}I")
    types = types[:first]
    wanted = sum(map(_number_of_parts, types))
    counts, rows = [], []
    try:
        for page in map(_decompressed, pages):
            count, *sizes = head.unpack_from(page, _SIZE.size)
            counts.append(count)
            rows.append(_split(page, _SIZE.size + head.size, sizes, wanted))
        parts = iter([list(part) for part in zip(*rows, strict=True)])
        of_pages = np.array(counts, np.int64)
        columns = [_column(kind, parts, of_pages) for kind in types]
        for column in columns:
            column.validate(full=True)
    except CorruptDataError:
        raise
    except Exception as error:
        raise CorruptDataError(f"A page of columns is damaged: {error}") from error
    return columns, of_pages


def _compressed(page: bytes) -> bytes:
    if len(page) < _COMPRESSED_FROM:
        return page
    packed = _ZSTD.compress(memoryview(page)[_SIZE.size :], asbytes=True)
    return b"".join((_SIZE.pack(len(page) - _SIZE.size), packed)) if len(packed) < len(page) // 4 * 3 else page


def _decompressed(page: bytes | memoryview) -> bytes:
    (size,) = _SIZE.unpack_from(page)
    if not size:
        return bytes(page)
    return b"".join((page[: _SIZE.size], _ZSTD.decompress(memoryview(page)[_SIZE.size :], size, asbytes=True)))


def _split(page: bytes, start: int, sizes: Sequence[int], wanted: int) -> list[bytes]:
    if start + sum(sizes) != len(page):
        raise CorruptDataError(f"A page of columns has {len(page)} bytes instead of {start + sum(sizes)}.")
    parts = []
    for size in sizes[:wanted]:
        parts.append(page[start : start + size])
        start += size
    return parts


def _number_of_parts(kind: pa.DataType) -> int:
    if pa.types.is_list(kind):
        return 2 + _number_of_parts(kind.value_type)
    if pa.types.is_struct(kind):
        return 1 + sum(_number_of_parts(field.type) for field in kind)
    return 3 if _is_bytes(kind) else 2


def _parts(column: pa.Array, bounds: Numbers) -> Iterator[_Part]:
    yield _nulls(column, bounds)
    kind = column.type
    if pa.types.is_list(kind) or _is_bytes(kind):
        offsets = (
            np.frombuffer(column.buffers()[1], np.int32, len(column) + 1, column.offset * 4)
            if len(column)
            else (np.zeros(1, np.int32))
        )
        yield from _whole_numbers(np.diff(offsets).astype(np.int64), bounds)
        inner = offsets[bounds].astype(np.int64)
        if pa.types.is_list(kind):
            first, last = int(inner[0]), int(inner[-1])
            yield from _parts(column.values.slice(first, last - first), inner - first)
        else:
            data = column.buffers()[2]
            yield _sliced(memoryview(b"" if data is None else data), inner)
    elif pa.types.is_struct(kind):
        for field in column.flatten():
            yield from _parts(field, bounds)
    elif pa.types.is_decimal128(kind):
        yield _sliced(memoryview(column.buffers()[1] or b"")[16 * column.offset :], 16 * bounds)
    elif pa.types.is_boolean(kind):
        yield _sliced(_bytes_of(column.fill_null(False).to_numpy(zero_copy_only=False)), bounds)
    elif pa.types.is_floating(kind):
        yield _sliced(_bytes_of(column.fill_null(0.0).to_numpy()), 8 * bounds)
    else:
        yield from _whole_numbers(_as_numbers(column), bounds)


def _column(kind: pa.DataType, parts: Iterator[_Part], counts: Numbers) -> pa.Array:
    rows = int(counts.sum())
    valid = _valid(next(parts), counts)
    nulls = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    if pa.types.is_list(kind) or _is_bytes(kind):
        lengths = _read_whole_numbers(next(parts), counts)
        if len(lengths) and lengths.min() < 0:
            raise CorruptDataError("A page of columns has a negative length.")
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        if ends[-1] >= 1 << 31:
            raise CorruptDataError("Pages of columns have more than 2 GB in a column.")
        offsets = pa.py_buffer(ends.astype(np.int32).tobytes())
        if pa.types.is_list(kind):
            firsts = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
            values = _column(kind.value_type, parts, np.diff(ends[firsts]))
            return pa.Array.from_buffers(kind, rows, [nulls, offsets], children=[values])
        return pa.Array.from_buffers(kind, rows, [nulls, offsets, pa.py_buffer(b"".join(next(parts)))])
    if pa.types.is_struct(kind):
        fields = [_column(field.type, parts, counts) for field in kind]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=None if valid is None else pa.array(~valid))
    if pa.types.is_boolean(kind):
        return pa.array(_fixed(next(parts), np.uint8, rows) != 0, kind, mask=_inverted(valid))
    if pa.types.is_decimal128(kind):
        data = b"".join(next(parts))
        if len(data) != 16 * rows:
            raise CorruptDataError("A page of columns has another number of values than rows.")
        return pa.Array.from_buffers(kind, rows, [nulls, pa.py_buffer(data)])
    if pa.types.is_floating(kind):
        return pa.array(_fixed(next(parts), np.float64, rows), kind, mask=_inverted(valid))
    numbers = _read_whole_numbers(next(parts), counts)
    if pa.types.is_date32(kind):
        return pa.array(numbers.astype(np.int32), pa.int32(), mask=_inverted(valid)).cast(kind)
    return pa.array(numbers, pa.int64(), mask=_inverted(valid)).cast(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _as_numbers(column: pa.Array) -> Numbers:
    if pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    numbers: Numbers = column.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers


def _nulls(column: pa.Array, bounds: Numbers) -> _Part:
    if not column.null_count:
        return [b""] * (len(bounds) - 1)
    valid = _sliced(_bytes_of(column.is_valid().to_numpy(zero_copy_only=False)), bounds)
    return [piece if 0 in piece else b"" for piece in valid]


def _valid(part: _Part, counts: Numbers) -> Numbers | None:
    if not any(part):
        return None
    joined = b"".join(piece or b"\1" * count for piece, count in zip(part, counts.tolist(), strict=True))
    valid: Numbers = _fixed([joined], np.uint8, int(counts.sum())) != 0
    return valid


def _whole_numbers(numbers: Numbers, bounds: Numbers) -> Iterator[_Part]:
    """Each page with the fewest bytes for its numbers."""
    pages = np.flatnonzero(np.diff(bounds))
    pieces = [b""] * (len(bounds) - 1)
    if len(pages):
        firsts = bounds[pages]
        least, greatest = np.minimum.reduceat(numbers, firsts), np.maximum.reduceat(numbers, firsts)
        spread = greatest.view(np.uint64) - least.view(np.uint64)  # as if in 64 bits without overflow
        widths = np.searchsorted(_LIMITS, spread, side="right")
        offset = np.repeat(least, np.diff(bounds)[pages])
        for code in np.unique(widths).tolist():
            size, kind = _WIDTHS[code]
            data = _bytes_of((numbers - offset).astype(kind) if size < 8 else numbers)
            for place in np.flatnonzero(widths == code).tolist():
                page = pages[place]
                base = _LEAST.pack(least[place] if size < 8 else 0)
                pieces[page] = base + data[bounds[page] * size : bounds[page + 1] * size]
    yield pieces


def _read_whole_numbers(part: _Part, counts: Numbers) -> Numbers:
    pages = np.flatnonzero(counts)
    sizes = np.fromiter(map(len, part), np.int64, len(part))[pages] - 8
    widths, remainder = np.divmod(sizes, np.maximum(counts[pages], 1))
    if remainder.any() or not set(widths.tolist()) <= {1, 2, 4, 8}:
        raise CorruptDataError("A page of columns has another number of values than rows.")
    numbers = np.empty(int(counts.sum()), np.int64)
    least = np.array([_LEAST.unpack_from(part[page])[0] for page in pages.tolist()], np.int64)
    by_row = np.repeat(widths, counts[pages])
    for size, kind in _WIDTHS:
        chosen = widths == size
        if chosen.any():
            data = np.frombuffer(b"".join(part[page][8:] for page in pages[chosen].tolist()), kind)
            values = data.astype(np.int64)
            if size < 8:
                values += np.repeat(least[chosen], counts[pages][chosen])
            if chosen.all():
                return values
            numbers[by_row == size] = values
    return numbers


def _fixed(part: _Part, kind: Any, rows: int) -> Numbers:
    values = np.frombuffer(b"".join(part), kind)
    if len(values) != rows:
        raise CorruptDataError("A page of columns has another number of values than rows.")
    return values


def _inverted(valid: Numbers | None) -> Numbers | None:
    return None if valid is None else ~valid


def _bytes_of(values: Numbers) -> memoryview:
    data: Any = np.ascontiguousarray(values)
    return memoryview(data).cast("B")


def _sliced(data: memoryview, bounds: Numbers) -> _Part:
    places = bounds.tolist()
    return [bytes(data[start:stop]) for start, stop in pairwise(places)]
