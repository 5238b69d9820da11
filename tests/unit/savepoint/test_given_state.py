"""Values of tables as values of states: converted to the declared type, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dsv2.checkpoint.class_changes import classes_of
from dsv2.checkpoint.column_types import column_type
from dsv2.checkpoint.type_shapes import shape_of
from dsv2.checkpoint.value_shapes import misfit
from dsv2.errors import ConfigurationError
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.savepoint.arrow_values import value_maker
from dsv2.savepoint.columns import to_array
from dsv2.savepoint.table_state import GivenState, local_values
from dsv2.state import StateDeclarations
from dsv2.state.types import classes_in


class Color(Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: float = 0.5


@dataclass
class Order:
    amount: Decimal
    points: list[Point]
    tags: dict[str, Color | None]


class Options(TypedDict):
    size: int


Meters = NewType("Meters", float)
WHEN = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
VALUES: list[tuple[Any, Any]] = [
    (int, 1), (float, 2), (Meters, 1.5), (bool, True), (str, "a"), (bytes, b"a"), (date, date(2026, 1, 2)),
    (datetime, WHEN), (time, time(1, 2, 3, 4)),
    (timedelta, timedelta(days=1, microseconds=1)),
    (Decimal, Decimal("1.5")), (UUID, UUID(int=7)), (Color, Color.RED), (Literal["a", "b"], "b"),
    (Point, Point(1, 2.0)),
    (Order, Order(Decimal(1), [Point(1, 2.0)], {"a": Color.RED, "b": None})),
    (Options, {"size": 3}), (tuple[int, str], (1, "a")), (tuple[int, ...], (1, 2)), (list[int | None], [1, None]),
    (set[str], {"a"}), (frozenset[int], frozenset([1])), (dict[str, Point], {"a": Point(1, 2.0)}),
    (Point | None, Point(1, 2.0)),
]  # fmt: skip


@pytest.mark.parametrize(("form", "value"), VALUES, ids=[str(form) for form, _ in VALUES])
def test_values_come_back_from_columns(form: Any, value: Any) -> None:
    column = column_type(form)
    assert column is not None
    (given,) = to_array([value], column).to_pylist()
    made = value_maker(form)(given)
    assert made == value
    assert type(made) is (float if form is float else type(value))
    assert misfit(made, shape_of(form), classes_of([form])) is None


MISFITS: list[tuple[Any, Any]] = [
    (int, 1.0),
    (int, "1"),
    (float, True),
    (float, Decimal(1)),
    (str, b"a"),
    (str, None),
    (Literal["a"], "c"),
    (Color, "GREEN"),
    (Point, (1, 2)),
    (Point, Point("1", 2.0)),  # type: ignore[arg-type]
    (Order, Order(Decimal(1), [Point(1, 2.0)], {"a": 1})),  # type: ignore[dict-item]
    (list[int], [1, "a"]),
    (dict[str, int], {"a": None}),
    (tuple[int, str], (1,)),
    (tuple[int, ...], (1, "a")),
    (int | str, 1.5),
]


@pytest.mark.parametrize(("form", "value"), MISFITS, ids=[f"{form} {value}" for form, value in MISFITS])
def test_values_of_other_types_are_noticed(form: Any, value: Any) -> None:
    reason = misfit(value, shape_of(form), classes_of([form]))
    assert reason is not None
    assert "is not of type" in reason


@pytest.mark.parametrize(("form", "value"), [(Any, 1), (object, 1), (Sequence[int], [1]), (Options, {"size": 1})])
def test_types_that_only_the_program_knows_are_not_checked(form: Any, value: Any) -> None:
    assert misfit(value, shape_of(form), classes_of([form])) is None


def state_of(form: Any, key_type: object = None) -> GivenState:
    declaration = StateDeclarations.value_state("s", form)
    types = TypeRegistry().with_classes(classes_in(form) | classes_in(key_type))
    return GivenState("f", declaration, 2, 128, key_type, None, types, None)


TABLE = pa.table({"subtask": [0, 1], "key": ["a", "b"], "value": [1, 2]})


def test_every_kind_of_table_has_the_same_rows(tmp_path: Any) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet")
    state = state_of(int)
    expected = list(state.rows({"a": 1, "b": 2}.items()))
    for data in (TABLE, TABLE.to_pandas(), ds.dataset(tmp_path / "a.parquet"), {"a": 1, "b": 2}):
        assert list(state.rows(local_values(state, data))) == expected


KEYS: list[tuple[Any, object, Any]] = [
    (-0.0, None, 0.0),
    ({"_1": 1, "_2": "a"}, None, (1, "a")),
    ({"x": 1, "y": 2.0}, Point, Point(1, 2.0)),
    ("RED", Color, Color.RED),
    (str(UUID(int=7)), UUID, UUID(int=7)),
    (pd.Timestamp(WHEN), None, WHEN),
    (pd.Timestamp("2026-01-02"), None, datetime(2026, 1, 2)),
    (pd.Timestamp("2026-01-02", tz="Europe/Berlin"), datetime, datetime(2026, 1, 1, 23, tzinfo=UTC)),
    (pd.Timedelta(days=1), timedelta, timedelta(days=1)),
    (7, int, 7),
]


@pytest.mark.parametrize(("given", "key_type", "key"), KEYS)
def test_keys_are_converted(given: Any, key_type: object, key: Any) -> None:
    state = state_of(int, key_type)
    (row,) = state.rows([(given, 1)])
    assert row.key is not None
    assert repr(Codec(state.types).loads(row.key, "key")) == repr(key)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pa.table({"key": [{"x": 1, "y": 2.0}], "value": [1]}), "is a struct. Name its class: key_type="),
        (pd.DataFrame({"key": ["a", 1], "value": [1, 2]}), "the pandas DataFrame is no Arrow table"),
        (pd.DataFrame({"key": ["a", "b"], "value": [1, None]}), "1.0 is not of type int"),
        (pa.table({"key": [[1]], "value": [1]}), "cannot be assigned to a subtask"),
        (pa.table({"key": pa.array([1], pa.timestamp("ns")), "value": [1]}), "it has nanoseconds"),
    ],
)
def test_impossible_tables_are_refused(data: Any, message: str) -> None:
    state = state_of(int)
    with pytest.raises(ConfigurationError, match=message):
        list(state.rows(local_values(state, data)))
