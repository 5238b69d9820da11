"""Algorithms on segments: rows of many keys in one table, sorted by the number of their key.

``of`` is the number of the key of each row. Rows with the same number form a segment. Except for ``sorting``, the
numbers are ascending. No algorithm has a loop over rows or keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.arrow.encoding import Numbers, in_one_piece

_LEAST: Final = np.iinfo(np.int64).min
_GREATEST: Final = np.iinfo(np.int64).max
NONE: Final = -1
"""The place of a row that does not exist."""


def codes_of(column: pa.Array | pa.ChunkedArray, *, descending: bool = False) -> Numbers:
    """Return whole numbers in the order of the values of a column. They must not be compared with those of another.

    Null is less than all values, and NaN is greater, as in Flink. Texts have the order of their code points.
    """
    values = in_one_piece(column) if isinstance(column, pa.ChunkedArray) else column
    codes = _codes(values)
    return np.invert(codes) if descending else codes


def _codes(values: pa.Array) -> Numbers:
    kind = values.type
    codes: Numbers
    if pa.types.is_float64(kind):
        floats = values.fill_null(0.0).to_numpy() + 0.0  # -0.0 is equal to 0.0
        bits = floats.view(np.int64)
        codes = np.where(bits < 0, bits ^ _GREATEST, bits)
        codes[np.isnan(floats)] = _GREATEST
    elif pa.types.is_boolean(kind) or pa.types.is_date32(kind):
        codes = values.cast(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
    elif pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
        codes = values.cast(pa.int64()).fill_null(0).to_numpy()
        if values.null_count and (codes == _LEAST).any():
            codes = _ranks(values)
    else:
        codes = _ranks(values)
    if values.null_count:
        codes = np.where(values.is_null().to_numpy(zero_copy_only=False), _LEAST, codes)
    return codes


def _ranks(values: pa.Array) -> Numbers:
    ranks: Numbers = pc.rank(values, sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
    return ranks


def combined(codes: Sequence[Numbers]) -> Numbers:
    """Return whole numbers in the order of rows that are compared by the first of ``codes``, then by the next."""
    if len(codes) == 1:
        return codes[0]
    order = sorting(*codes)
    steps = np.zeros(len(order), np.bool_)
    for one in codes:
        steps[1:] |= one[order[1:]] != one[order[:-1]]
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(steps)
    return found


def sorting(of: Numbers, *codes: Numbers) -> Numbers:
    """Return the places of rows, sorted by the number of the key and by ``codes``. Equal rows keep their order."""
    if not len(of) or (not codes and (of[1:] >= of[:-1]).all()):
        return np.arange(len(of))
    bits = len(of).bit_length()
    packed, limit = np.zeros(len(of), np.int64), 1 << bits
    for part in (of, *codes):
        least = int(part.min())
        span = int(part.max()) - least + 1
        limit *= span
        if limit > _GREATEST:
            return np.lexsort((*reversed(codes), of))
        packed = packed * span + (part - least)
    packed = packed << bits | np.arange(len(of))  # to sort these numbers is several times as fast as to sort by them
    packed.sort()
    return packed & (1 << bits) - 1


def bounds(of: Numbers, count: int) -> Numbers:
    """Return the place where the segment of each of ``count`` keys starts, and the number of rows."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(of, minlength=count))])


def heads(of: Numbers) -> Numbers:
    """Return which rows are the first of their segment."""
    return np.concatenate([np.ones(min(len(of), 1), np.bool_), of[1:] != of[:-1]])


def tails(of: Numbers) -> Numbers:
    """Return which rows are the last of their segment."""
    return np.concatenate([of[1:] != of[:-1], np.ones(min(len(of), 1), np.bool_)])


def starts(of: Numbers) -> Numbers:
    """Return the place of the first row of its segment, for each row."""
    first = np.flatnonzero(heads(of))
    return np.repeat(first, np.diff(np.append(first, len(of))))


def stops(of: Numbers) -> Numbers:
    """Return the place after the last row of its segment, for each row."""
    first = np.append(np.flatnonzero(heads(of)), len(of))
    return np.repeat(first[1:], np.diff(first))


def ranks(of: Numbers) -> Numbers:
    """Return the number of rows before it in its segment, for each row."""
    return np.arange(len(of)) - starts(of)


def shared_ranks(of: Numbers, codes: Numbers, *, dense: bool) -> Numbers:
    """Return the number of rows before it with another code in its segment, for each row.

    Args:
        of: The numbers of the keys.
        codes: Codes of the rows. They ascend in each segment.
        dense: Whether rows with the same code count as one.
    """
    is_new = heads(of)
    is_new[1:] |= codes[1:] != codes[:-1]
    number: Numbers = np.cumsum(is_new)
    counted: Numbers = number if dense else np.flatnonzero(is_new)[number - 1]
    found: Numbers = counted - counted[starts(of)]
    return found


def greatest(of: Numbers, codes: Numbers) -> Numbers:
    """Return the greatest code of each segment up to each row."""
    found = codes.copy()
    within = ranks(of)
    step, longest = 1, int(within.max(initial=0))
    while step <= longest:
        later = np.flatnonzero(within >= step)
        found[later] = np.maximum(found[later], found[later - step])
        step *= 2
    return found


def first_at_least(values: Numbers, low: Numbers, high: Numbers, wanted: Any) -> Numbers:
    """Return the first place from ``low`` on whose value is at least ``wanted``, or ``high`` if there is none.

    Args:
        values: Numbers that ascend between ``low`` and ``high``.
        low: The first places.
        high: The places after the last.
        wanted: The values to find, one for each pair of places.
    """
    low, high = low.copy(), high.copy()
    wanted = np.broadcast_to(wanted, low.shape)
    open_ = np.flatnonzero(low < high)
    while len(open_):
        middle = (low[open_] + high[open_]) >> 1
        less = values[middle] < wanted[open_]
        low[open_[less]] = middle[less] + 1
        high[open_[~less]] = middle[~less]
        open_ = open_[low[open_] < high[open_]]
    return low


def ranges(first: Numbers, last: Numbers) -> tuple[Numbers, Numbers]:
    """Return all places from ``first`` to before ``last``, one range after the other, and the range of each."""
    sizes = np.maximum(last - first, 0)
    which = np.repeat(np.arange(len(sizes)), sizes)
    return np.arange(len(which)) - np.repeat(np.cumsum(sizes) - sizes - first, sizes), which


def matches(left: Numbers, right: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """Return the places of all pairs of rows that belong to the same key, in the order of the left rows.

    Args:
        left: The numbers of the keys of the left rows, in any order.
        right: The numbers of the keys of the right rows.
        count: The number of keys.
    """
    of_right = bounds(right, count)
    places, which = ranges(of_right[left], of_right[left + 1])
    return which, places
