"""Values and columns become columns only if that keeps each value and its meaning."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dsv2.arrow.casts import array_of, cast_exactly
from dsv2.errors import SchemaError

BOOL, INT, FLOAT, TEXT, BYTES = pa.bool_(), pa.int64(), pa.float64(), pa.string(), pa.binary()
DAY, TIME, DECIMAL = pa.date32(), pa.timestamp("us"), pa.decimal128(38, 18)
TYPES = [BOOL, INT, FLOAT, TEXT, BYTES, DAY, TIME, DECIMAL, pa.list_(INT), pa.list_(TEXT)]
NOON = datetime(2024, 1, 1, 12, microsecond=1)


class Size(IntEnum):
    SMALL = 1


class Color(StrEnum):
    RED = "red"


VALUES: list[tuple[Any, list[pa.DataType]]] = [
    (True, [BOOL, INT, FLOAT]), (1, [INT, FLOAT, DECIMAL]), (2**53 + 1, [INT, DECIMAL]), (-(2**63), [INT, DECIMAL]),
    (2**63, [DECIMAL]), (Size.SMALL, [INT, FLOAT, DECIMAL]), (1.0, [FLOAT]), (1.5, [FLOAT]), (-0.0, [FLOAT]),
    (math.inf, [FLOAT]), (Fraction(1), []), (1j, []), ("1", [TEXT]), ("", [TEXT]), ("\0", [TEXT]), ("\ud800", []),
    (Color.RED, [TEXT]), (b"1", [BYTES]), (bytearray(b"1"), [BYTES]), (memoryview(b"1"), []), (date(2024, 1, 1), [DAY]),
    (date.min, [DAY]), (datetime(2024, 1, 1), [TIME]), (datetime.max, [TIME]), (NOON, [TIME]),
    (NOON.replace(tzinfo=UTC), []), (timedelta(1), []), (pd.Timestamp(NOON), [TIME]),
    (pd.Timestamp(NOON, tz="UTC"), []),
    (pd.Timestamp(2024, 1, 1, nanosecond=1), []),
    (pd.NaT, []), (pd.NA, []), (Decimal("1.5"), [DECIMAL]), (Decimal("1e25"), []), (Decimal("1e-19"), []),
    (Decimal("NaN"), []), (Decimal("sNaN"), []), (Decimal("Infinity"), []), (np.int32(1), [INT, FLOAT]),
    (np.uint64(2**64 - 1), []), (np.longdouble(0.1), []), (np.float32(0.1), [FLOAT]), (np.bool_(True), [BOOL]),
    (np.datetime64("2024-01-01"), []), (np.str_("a"), [TEXT]), ([1, 2], [pa.list_(INT)]), (["a"], [pa.list_(TEXT)]),
    ([1.5], []), ([b"a"], []), ([], [pa.list_(INT), pa.list_(TEXT)]), ((1, 2), []), ({1}, []), ({"a": 1}, []),
]  # fmt: skip


@pytest.mark.parametrize(("value", "taken"), VALUES, ids=lambda value: f"{value!r:.40}")
def test_values_are_kept_or_refused(value: Any, taken: list[pa.DataType]) -> None:
    for kind in TYPES:
        for values in ([value], [None, value, None]):
            if kind not in taken:
                with pytest.raises(
                    SchemaError, match=r"^Field 'x' of Point, which is .*, contains a value that does not"
                ):
                    array_of(values, kind, "Field 'x' of Point")
                continue
            found = array_of(values, kind, "Field 'x' of Point")
            assert found.type == kind
            assert found.to_pylist() == values
            found.validate(full=True)


def test_refused_value_is_named() -> None:
    for value, kind, said in [
        (1.5, INT, "1.5 (float). Convert the value"),
        (NOON, DAY, "datetime.datetime(2024, 1, 1, 12, 0, 0, 1) (datetime). Take its date"),
        (NOON.replace(tzinfo=UTC), TIME, "(datetime with a time zone). Convert it to UTC and remove its time zone"),
        (pd.Timestamp(2024, 1, 1, nanosecond=1), TIME, "(Timestamp). Round it to microseconds"),
        (pd.NaT, TIME, "NaT (NaTType). Use None"),
    ]:
        with pytest.raises(SchemaError) as raised:
            array_of([value], kind, "Field 'x' of Point")
        assert said in str(raised.value)


def test_mixed_values_are_kept_or_refused() -> None:
    assert array_of([True, 2, None, np.int8(3)], INT, "x").to_pylist() == [1, 2, None, 3]
    assert array_of([1, 1.5, True], FLOAT, "x").to_pylist() == [1.0, 1.5, 1.0]
    assert array_of([0.5, np.int64(2**53), np.float16(0.1)], FLOAT, "x").to_pylist() == [0.5, 2.0**53, np.float16(0.1)]
    assert array_of([[1], None, [], [True, None]], pa.list_(INT), "x").to_pylist() == [[1], None, [], [1, None]]
    assert math.isnan(array_of([math.nan], FLOAT, "x")[0].as_py()), "and not null"
    refused: list[tuple[list[Any], pa.DataType]] = [
        ([1, 1.5], INT),
        (["a", b"a"], TEXT),
        (["a", b"a"], BYTES),
        ([date(2024, 1, 1), NOON], DAY),
        ([NOON, date(2024, 1, 1)], TIME),
        ([NOON, NOON.replace(tzinfo=UTC)], TIME),
        ([Decimal(1), 1.5], DECIMAL),
        ([[1], ["a"]], pa.list_(INT)),
    ]
    for values, kind in refused:
        with pytest.raises(SchemaError):
            array_of(values, kind, "x")


def column(values: list[Any], kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (column([1, None], pa.int32()), INT),
        (column([2**63 - 1], pa.uint64()), INT),
        (column([True, False], BOOL), BOOL),
        (column([0.5], pa.float32()), FLOAT),
        (column([2**53, None], INT), FLOAT),
        (column([NOON.replace(microsecond=0)], pa.timestamp("s")), TIME),
        (column([NOON], pa.timestamp("ns")), TIME),
        (column([date(2024, 1, 1)], pa.date64()), DAY),
        (column([Decimal("1.5")], pa.decimal128(3, 1)), DECIMAL),
        (column([Decimal("1.5")], pa.decimal256(60, 20)), DECIMAL),
        (column([1], INT), DECIMAL),
        (column(["a", None], pa.large_string()), TEXT),
        (column(["a", None], pa.string_view()), TEXT),
        (column([b"a"], pa.large_binary()), BYTES),
        (column([b"a"], pa.binary(1)), BYTES),
        (column(["a", "b", "a"], TEXT).dictionary_encode(), TEXT),
        (column([1, None], pa.int8()).dictionary_encode(), INT),
        (column([[1], None], pa.list_(pa.int32())), pa.list_(INT)),
        (column([["a"]], pa.large_list(pa.large_string())), pa.list_(TEXT)),
        (column([[1, 2]], pa.list_(INT, 2)), pa.list_(INT)),
        (column([None, None], pa.null()), DAY),
        (column([[], [None]], pa.list_(pa.null())), pa.list_(TEXT)),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_columns_are_cast_exactly(given: pa.ChunkedArray, wanted: pa.DataType) -> None:
    found = cast_exactly(given, wanted, "Field 'x' of Point")
    assert (found.type, found.to_pylist()) == (wanted, given.to_pylist())


@pytest.mark.parametrize(
    ("given", "wanted", "said"),
    [
        (column([1], INT), BOOL, "cannot hold a column of int64. Cast the column"),
        (column([True], BOOL), INT, "a column of bool"),
        (column([1.0], FLOAT), INT, "a column of double. Cast it, or declare the field as float. In pandas"),
        (column([1], INT), TEXT, "a column of int64"),
        (column(["1"], TEXT), INT, "a column of string"),
        (column(["1"], TEXT), BYTES, "a column of string"),
        (column([b"1"], BYTES), TEXT, "a column of binary"),
        (column([NOON], TIME), INT, "a column of timestamp"),
        (column([NOON], TIME), DAY, "a column of timestamp"),
        (column([date(2024, 1, 1)], DAY), TIME, "a column of date32"),
        (column([timedelta(1)], pa.duration("us")), INT, "a column of duration"),
        (
            column([NOON], pa.timestamp("us", "UTC")),
            TIME,
            "a column of timestamp.us, tz=UTC.. Convert it to UTC and remove the time zone",
        ),
        (column([1.5], FLOAT), DECIMAL, "a column of double"),
        (column(["a"], TEXT).dictionary_encode(), INT, "a column of dictionary"),
        (column([["1"]], pa.list_(TEXT)), pa.list_(INT), "a column of list"),
        (column([1], INT), pa.list_(INT), "a column of int64"),
        (column([2**63], pa.uint64()), INT, "a value of uint64: Integer value 9223372036854775808 not in range"),
        (column([2**53 + 1], INT), FLOAT, "a value of int64"),
        (column([1], INT).cast(pa.timestamp("ns")), TIME, "a value of timestamp.ns.: .* would lose data"),
        (column([Decimal("1e25")], pa.decimal128(26, 0)), DECIMAL, "a value of decimal128"),
        (column([Decimal("1e-19")], pa.decimal128(19, 19)), DECIMAL, "a value of decimal128"),
    ],
    ids=str,
)
def test_other_columns_are_refused(given: pa.ChunkedArray, wanted: pa.DataType, said: str) -> None:
    with pytest.raises(
        SchemaError, match=f"^Field 'x' of Point, which is .*, cannot hold {said.removeprefix('cannot hold ')}"
    ):
        cast_exactly(given, wanted, "Field 'x' of Point")
