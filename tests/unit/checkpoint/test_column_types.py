"""Column types of declared types, and values as typed columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import pytest

from dsv2.checkpoint.column_types import ListColumn, MapColumn, StructColumn, column_type, column_type_of_value
from dsv2.savepoint.columns import arrow_type, to_array


class Colour(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 3


class Point(NamedTuple):
    x: int
    y: float | None


@dataclass
class Order:
    number: int
    lines: list[Point]
    note: str | None = None


@dataclass
class Node:
    children: list[Node]


class Options(TypedDict):
    depth: int


Meters = NewType("Meters", float)
POINT = StructColumn((("x", "int64"), ("y", "float64")))
PAIR = StructColumn((("_1", "int64"), ("_2", "string")))


class Unresolvable(NamedTuple):
    value: Unknown  # type: ignore[name-defined]  # noqa: F821 - only for type checkers


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (int, "int64"), (str | None, "string"), (Meters, "float64"), (Annotated[bytes, "raw"], "binary"),
        (Literal["a", "b"], "string"), (Literal[1, "b"], None), (Colour, "string"), (Level, "string"),
        (list[date], ListColumn("date")), (frozenset[UUID], ListColumn("string")),
        (tuple[int, ...], ListColumn("int64")),
        (tuple[int, str], PAIR),
        (dict[str, list[bool]], MapColumn("string", ListColumn("bool"))),
        (Point, POINT),
        (Order, StructColumn((("number", "int64"), ("lines", ListColumn(POINT)), ("note", "string")))),
        (Options, StructColumn((("depth", "int64"),))), (int | str, None), (list[int | str], None), (Node, None),
        (Unresolvable, None), (object, None), (Any, None), (Sequence[int], None), (list, None), (tuple[()], None),
    ],
    ids=str,
)  # fmt: skip
def test_type_of_declared_type(form: object, expected: object) -> None:
    assert column_type(form) == expected


@pytest.mark.parametrize(
    ("form", "values", "columns"),
    [
        (int, [1, True, None, 1 << 63, -(1 << 63), 1.5, "x"], [1, 1, None, None, -(1 << 63), None, None]),
        (float, [1.5, 2, None, "x", float("inf"), 2**53 + 1], [1.5, 2.0, None, None, float("inf"), None]),
        (str, ["ü", "\udc80", "", None, 1], ["ü", None, "", None, None]),
        (bytes, [b"\x00", "x"], [b"\x00", None]),
        (bool, [True, 0], [True, None]),
        (Colour, [Colour.RED, None], ["RED", None]),
        (UUID, [UUID(int=1)], ["00000000-0000-0000-0000-000000000001"]),
        (date, [date(2026, 1, 2), "x", datetime(2026, 1, 2, 3)], [date(2026, 1, 2), None, None]),
        (time, [time(1, 2, 3, 4)], ["01:02:03.000004"]),
        (timedelta, [timedelta(days=1, microseconds=1), timedelta.max], [86_400_000_001, None]),
        (timedelta, [timedelta(days=200_000, microseconds=1)], [200_000 * 86_400_000_000 + 1]),
        (datetime, [datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1))), datetime(2026, 1, 1)],
         [datetime(2025, 12, 31, 23, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
        (Decimal, [Decimal("1.5"), Decimal("1e-19"), Decimal("1e20"), Decimal("NaN"), Decimal("-12345678901234567890")],
         [Decimal("1.5"), None, None, None, Decimal("-12345678901234567890")]),
        (dict[str, int], [{"a": 1}, {}, None, {"a": "x"}, {None: 1}], [[("a", 1)], [], None, None, None]),
        (list[int], [[1, None], [1 << 70], (3,)], [[1, None], None, [3]]),
        (tuple[int, str], [(1, "a"), (1,)], [{"_1": 1, "_2": "a"}, None]),
        (Options, [{"depth": 1}, {}], [{"depth": 1}, {"depth": None}]),
        (Order, [Order(1, [Point(2, None)], "x"), Order(1, [], None), "x"],
         [{"number": 1, "lines": [{"x": 2, "y": None}], "note": "x"}, {"number": 1, "lines": [], "note": None}, None]),
    ],
    ids=str,
)  # fmt: skip
def test_values_of_declared_type(form: object, values: list[Any], columns: list[Any]) -> None:
    column = column_type(form)
    assert column is not None
    assert to_array(values, column).to_pylist() == columns
    assert to_array([], column).type == arrow_type(column)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, "int64"), (True, "bool"), ("a", "string"), (Level.LOW, "string"),
        ((1, "a"), PAIR),
        (Point(1, 2.5), POINT), (Point(1, None), None), ((), None), (None, None), (object(), None),
    ],
    ids=str,
)  # fmt: skip
def test_type_of_a_key_is_inferred(value: object, expected: object) -> None:
    assert column_type_of_value(value) == expected
