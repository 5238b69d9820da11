"""Aggregates of frames: ranges of rows that may overlap, such as the last ten of each row."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dsv2.arrow.aggregate_columns import AggregateColumns, Arrays, FoldColumns, MeanColumns, ones
from dsv2.arrow.encoding import Numbers
from dsv2.arrow.keyed.folding import Groups, fits_in_sum, fold
from dsv2.arrow.segments import ranges

_AT_ONCE: Final = 1 << 20
"""The number of rows of frames that are in memory together. A single frame may have more."""


def results_of_frames(columns: AggregateColumns[Any], inputs: Arrays, low: Numbers, high: Numbers) -> pa.Array:
    """Return the result of an aggregate for each frame. Frames are not empty.

    Args:
        columns: The aggregate.
        inputs: Its inputs for all rows.
        low: The first row of each frame.
        high: The row after the last.
    """
    if not len(low):
        return pa.array([], columns.result_type)
    if isinstance(columns, MeanColumns):
        return columns.results([_sums(one, low, high) for one in (inputs[0], ones(inputs[0]))])
    if isinstance(columns, FoldColumns) and columns.part.how == "sum":
        return _sums(inputs[0], low, high)
    return pa.concat_arrays([_results(columns, inputs, low[a:b], high[a:b]) for a, b in _portions(high - low)])


def _results(columns: AggregateColumns[Any], inputs: Arrays, low: Numbers, high: Numbers) -> pa.Array:
    places, which = ranges(low, high)
    current = [pa.nulls(len(low), kind) for kind in columns.types]
    own = [values.take(pa.array(places)) for values in inputs]
    return columns.results(columns.fold(current, own, Groups(which, len(low))))


def _sums(values: pa.Array, low: Numbers, high: Numbers) -> pa.Array:
    if pa.types.is_int64(values.type):
        numbers = values.fill_null(0).to_numpy()
        if fits_in_sum(numbers):
            sums, present = _up_to(numbers), _up_to(values.is_valid().to_numpy(zero_copy_only=False))
            return pa.array(sums[high] - sums[low], mask=present[high] == present[low])
    return pa.concat_arrays([_folded_sums(values, low[a:b], high[a:b]) for a, b in _portions(high - low)])


def _folded_sums(values: pa.Array, low: Numbers, high: Numbers) -> pa.Array:
    places, which = ranges(low, high)
    return fold("sum", pa.nulls(len(low), values.type), values.take(pa.array(places)), Groups(which, len(low)))


def _portions(sizes: Numbers) -> list[tuple[int, int]]:
    total = np.cumsum(sizes)
    _, firsts = np.unique(total // _AT_ONCE, return_index=True)
    return list(pairwise([0, *firsts[1:].tolist(), len(sizes)]))


def _up_to(numbers: Numbers) -> Numbers:
    """The sum of the numbers before each place."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers, dtype=np.int64)])
