"""The algorithms on segments, each compared with loops in Python."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.arrow import segments

NUMBERS = st.lists(st.integers(0, 4), max_size=12)
ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3)), max_size=12)
LARGE = st.integers(-(1 << 63), (1 << 63) - 1)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "whole numbers": (pa.int64(), LARGE | st.integers(-2, 2)),
    "floats": (pa.float64(), st.floats()),
    "booleans": (pa.bool_(), st.booleans()),
    "texts": (pa.string(), st.text(max_size=2)),
    "bytes": (pa.binary(), st.binary(max_size=2)),
    "dates": (pa.date32(), st.dates()),
    "times": (pa.timestamp("us"), st.datetimes() | st.sampled_from([datetime.min, datetime.max])),
    "decimals": (pa.decimal128(38, 18), st.decimals(-9, 9, places=2)),
}


def numbers(values: Sequence[int]) -> Any:
    return np.array(values, np.int64)


def in_segments(of: Sequence[int]) -> list[list[int]]:
    """The places of each segment."""
    return [[place for place, _ in rows] for _, rows in groupby(enumerate(of), key=lambda row: row[1])]


def by_row(of: Sequence[int], value_of: Callable[[list[int], int], int]) -> list[int]:
    """What ``value_of`` returns for the places of a segment, and a row in it."""
    return [value_of(places, row) for places in in_segments(of) for row in range(len(places))]


@pytest.mark.parametrize("kind", VALUES)
def test_codes_have_the_order_of_the_values(kind: str) -> None:
    form, values = VALUES[kind]

    @given(st.lists(st.none() | values, max_size=8))
    def check(column: list[Any]) -> None:
        def key(value: Any) -> Any:
            is_nan = isinstance(value, float) and math.isnan(value)
            return (0, 0) if value is None else (2, 0) if is_nan else (1, value)

        keys = list(map(key, column))
        for descending in (False, True):
            codes = segments.codes_of(pa.array(column, form), descending=descending).tolist()
            for one, code in zip(keys, codes, strict=True):
                for other, other_code in zip(keys, codes, strict=True):
                    assert (code < other_code) == (one > other if descending else one < other)

    check()


def test_codes_of_extreme_values() -> None:
    column = pa.array([None, date.min, date.max], pa.date32())
    assert segments.codes_of(column).argsort().tolist() == [0, 1, 2]
    assert segments.codes_of(pa.chunked_array([[Decimal(1)], [Decimal(0)]])).argsort().tolist() == [1, 0]


@given(ROWS | st.lists(st.tuples(st.integers(0, 4), LARGE | st.integers(-3, 3)), max_size=12))
def test_sorting_is_stable(rows: list[tuple[int, int]]) -> None:
    of, codes = numbers([key for key, _ in rows]), numbers([code for _, code in rows])
    assert segments.sorting(of, codes).tolist() == sorted(range(len(rows)), key=rows.__getitem__)
    assert segments.sorting(of).tolist() == sorted(range(len(rows)), key=lambda place: rows[place][0])


@given(NUMBERS.map(sorted))
def test_places_in_segments(of: list[int]) -> None:
    found = numbers(of)
    assert segments.starts(found).tolist() == by_row(of, lambda places, _: places[0])
    assert segments.stops(found).tolist() == by_row(of, lambda places, _: places[-1] + 1)
    assert segments.ranks(found).tolist() == by_row(of, lambda _, row: row)
    assert segments.heads(found).tolist() == by_row(of, lambda _, row: row == 0)
    assert segments.tails(found).tolist() == by_row(of, lambda places, row: row == len(places) - 1)
    assert segments.bounds(found, 6).tolist() == [bisect_left(of, key) for key in range(7)]


@given(ROWS.map(lambda rows: sorted(rows, key=lambda row: row[0])))
def test_greatest_so_far(rows: list[tuple[int, int]]) -> None:
    of, codes = [key for key, _ in rows], [code for _, code in rows]
    found = segments.greatest(numbers(of), numbers(codes)).tolist()
    assert found == by_row(of, lambda places, row: max(codes[place] for place in places[: row + 1]))


@given(ROWS.map(sorted), st.integers(0, 5))
def test_first_at_least(rows: list[tuple[int, int]], back: int) -> None:
    """The first row of the segment that is at most ``back`` behind, for each row."""
    of, times = [key for key, _ in rows], [time for _, time in rows]
    low, wanted = segments.starts(numbers(of)), numbers(times) - back
    found = segments.first_at_least(numbers(times), low, np.arange(len(of)), wanted)
    assert found.tolist() == by_row(
        of, lambda places, row: next(place for place in places if times[place] >= times[places[row]] - back)
    )
    nowhere = segments.first_at_least(numbers(times), low, segments.stops(numbers(of)), 9)
    assert nowhere.tolist() == segments.stops(numbers(of)).tolist()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=6))
def test_ranges(bounds: list[tuple[int, int]]) -> None:
    first, last = numbers([one for one, _ in bounds]), numbers([one for _, one in bounds])
    places, which = segments.ranges(first, last)
    expected = [(place, number) for number, bound in enumerate(bounds) for place in range(*bound)]
    assert list(zip(places.tolist(), which.tolist(), strict=True)) == expected


@given(NUMBERS, NUMBERS.map(sorted))
def test_matches(left: list[int], right: list[int]) -> None:
    found = segments.matches(numbers(left), numbers(right), 5)
    expected = [(a, b) for a, of_left in enumerate(left) for b, of_right in enumerate(right) if of_left == of_right]
    assert list(zip(*(places.tolist() for places in found), strict=True)) == expected
