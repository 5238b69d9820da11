"""Records as Arrow tables and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsv2.arrow import records_of, schema_of
from dsv2.arrow.converters import of_columns
from dsv2.arrow.encoding import narrowed
from dsv2.arrow.records import ArrowRecords, ArrowWholeNumbers, table_of
from dsv2.arrow.schema import can_be_columns
from dsv2.base.columnar import Columnar, column_names
from dsv2.errors import CorruptDataError, SchemaError
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.key_groups import subtask_of

if TYPE_CHECKING:
    Unresolvable = int


class Everything(NamedTuple):
    """A field of each type."""

    yes: bool
    number: int
    part: float
    text: str
    raw: bytes
    day: date
    time: datetime
    amount: Decimal
    many: list[int]
    perhaps: str | None


@dataclass(frozen=True)
class Point:
    """A dataclass."""

    x: int
    y: float


@dataclass
class Named:
    """A dataclass with keyword-only fields."""

    name: str = field(kw_only=True)


class Nullable(NamedTuple):
    """Numbers that may be missing."""

    x: int | None


class Text(NamedTuple):
    """A field that is not a number."""

    text: str


WHOLE = st.integers(-(2**63), 2**63 - 1)
EVERYTHING = st.builds(
    Everything,
    st.booleans(),
    WHOLE,
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8")),
    st.binary(),
    st.dates(),
    st.datetimes(),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=18),
    st.lists(WHOLE, max_size=3),
    st.none() | st.text(st.characters(codec="utf-8")),
)


@given(st.lists(EVERYTHING, max_size=20))
def test_records_survive_conversion_to_columns(rows: list[Everything]) -> None:
    table = table_of(rows, Everything)
    assert table.schema == schema_of(Everything)
    assert records_of(table, Everything).rows() == rows


@pytest.mark.parametrize("rows", [[Point(1, 0.5), Point(2, 1.5)], [Named(name="a")]], ids=["dataclass", "keywords"])
def test_dataclasses_have_columns(rows: list[Any]) -> None:
    assert list(records_of(table_of(rows, type(rows[0])), type(rows[0]))) == rows


@given(st.lists(WHOLE, max_size=20), st.slices(20))
def test_slices_equal_those_of_a_list(numbers: list[int], cut: slice) -> None:
    rows = [Point(number, 0.0) for number in numbers]
    records = records_of(table_of(rows, Point), Point)
    assert list(records[cut]) == rows[cut]
    assert isinstance(records[cut], Columnar)
    times = records.whole_numbers("x")
    if times is not None:
        assert list(times[cut]) == numbers[cut]
        assert times.greatest == max(numbers)
        assert times[-1] == numbers[-1]


def test_single_record_does_not_convert_the_others() -> None:
    records = records_of(table_of([Point(1, 0.5), Point(2, 1.5)], Point), Point)
    assert (records[0], records[-1]) == (Point(1, 0.5), Point(2, 1.5))
    assert records._rows is None
    with pytest.raises(IndexError):
        records[2]
    assert records.rows()[1] is records[1], "once they are converted"


def test_table_columns_may_be_extra_reordered_or_narrower() -> None:
    table = pa.table({"more": ["a"], "y": pa.array([0.5], pa.float32()), "x": pa.array([7], pa.int8())})
    assert list(records_of(table, Point)) == [Point(7, 0.5)]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pa.table({"x": [1]}), "no column 'y', so it does not match Point. Its columns are x int64"),
        (pa.table({"x": ["one"], "y": [0.5]}), "Field 'x' of Point, which is int64, cannot hold a column of string"),
        (pa.table({"x": [None, 1], "y": [0.5, 0.5]}), "Field 'x' of Point is None in a record"),
    ],
    ids=["missing", "other type", "none"],
)
def test_other_tables_are_refused(table: pa.Table, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        records_of(table, Point)


class Strange(NamedTuple):
    """Has a field without a column type."""

    what: set[int]


class Either(NamedTuple):
    """Has a field of two types."""

    value: int | str


class WithUnresolvable(NamedTuple):
    """Has a field whose type exists only for type checkers."""

    value: Unresolvable


@pytest.mark.parametrize(
    ("kind", "columns", "possible"),
    [
        (Point, {"x": pa.int64(), "y": pa.float64()}, True),
        (Point, {"y": pa.float32(), "more": pa.string(), "x": pa.int16()}, True),
        (Point, {"x": pa.int64(), "z": pa.float64()}, False),
        (Point, {"x": pa.uint32(), "y": pa.float64()}, False),
        (Point, {"x": pa.int64(), "y": pa.int64()}, False),
        (Strange, {"what": pa.int64()}, False),
        (WithUnresolvable, {"value": pa.int64()}, False),
    ],
    ids=["same", "narrower", "missing", "unsigned", "integer for float", "no column type", "unresolvable"],
)
def test_columns_fit_records_of_the_same_or_a_wider_type(
    kind: type, columns: dict[str, pa.DataType], possible: bool
) -> None:
    assert can_be_columns(kind, pa.schema(columns)) is possible


def test_unresolvable_field_type_is_refused() -> None:
    with pytest.raises(SchemaError, match="field types of WithUnresolvable cannot be resolved: name 'Unresolvable'"):
        schema_of(WithUnresolvable)


@pytest.mark.parametrize(
    ("rows", "kind", "said"),
    [
        ([Point(1 << 63, 0.5)], Point, "Field 'x' of Point, which is int64, contains a value that does not fit"),
        ([Point(None, 0.5)], Point, "Field 'x' of Point is None in a record"),  # type: ignore[arg-type]
        ([Strange(set())], Strange, "Field 'what' of Strange has type set"),
        ([Either(1)], Either, r"Field 'value' of Either has type int \| str"),
        ([{"x": 1}], dict, "dict has no columns. Use a NamedTuple class or a dataclass"),
        (
            [Everything(True, 1, 1.0, "", b"", date.min, datetime(2024, 1, 1, tzinfo=UTC), Decimal(1), [], None)],
            Everything,
            "Field 'time' of Everything.*time zone",
        ),
    ],
    ids=["too large", "none", "no type", "two types", "no class", "zone"],
)
def test_records_without_columns_are_refused(rows: list[Any], kind: type, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        table_of(rows, kind)


def test_columns_and_timestamps_are_serialized() -> None:
    codec = Codec(TypeRegistry([Point]))
    points = [Point(number, number**0.5) for number in range(100)]
    whole = records_of(table_of(points, Point), Point)
    records = whole[10:20]
    blob = codec.seal_columns(BlobKind.FRAME, (records, records.whole_numbers("x") or ()))
    found, times = codec.unseal_columns(BlobKind.FRAME, blob, "test")
    assert isinstance(found, Columnar)
    assert (list(found), list(times)) == (points[10:20], list(range(10, 20)))
    assert len(blob) < len(codec.seal_columns(BlobKind.FRAME, [whole]))


@example([7, 262])
@example([7, 263])
@example([-1, 65_534])
@example([-1, 65_535])
@example([1 << 40, (1 << 40) + (1 << 32) - 1])
@example([1 << 40, (1 << 40) + (1 << 32)])
@example([-(1 << 63), (1 << 63) - 1])
@given(st.lists(WHOLE, max_size=5))
def test_integers_are_stored_in_the_fewest_bytes(numbers: list[int]) -> None:
    codec = Codec(TypeRegistry([Point]))
    records = records_of(table_of([Point(number, 0.5) for number in numbers], Point), Point)
    found, times = codec.loads(codec.dumps((records, records.whole_numbers("x"))), "test")
    assert found.table.equals(records.table)
    assert list(times or ()) == numbers
    spread = max(numbers, default=0) - min(numbers, default=0)
    width = next(width for width in (1, 2, 4, 8) if spread < 1 << 8 * width)
    assert narrowed(np.array(numbers, np.int64))[0].itemsize == (width if numbers else 8)


@pytest.mark.parametrize(
    ("kind", "parts", "said"),
    [
        (ArrowRecords, ("Point", b"", 0, (None, None)), "must consist of a class and its columns"),
        (ArrowRecords, (Point, b"", 0, (("<f8", 0), None)), "must consist of a class and its columns"),
        (ArrowRecords, (Point, b"x", 256, (None, None)), "1 compressed bytes of a table cannot expand to 256 bytes"),
        (ArrowRecords, (Point, b"x", -1, (None, None)), "1 compressed bytes of a table cannot expand to -1 bytes"),
        (ArrowWholeNumbers, (b"", "<f8", 0), "'<f8' is not an integer type"),
    ],
)
def test_damaged_columns_are_refused(kind: type, parts: Any, said: str) -> None:
    with pytest.raises(CorruptDataError, match=said):
        of_columns()[kind].build(parts)


@pytest.mark.parametrize("stamped", [None, list, "column"])
def test_split_keeps_the_order_of_each_subtask(stamped: Any) -> None:
    points = [Point(number * 7 % 50, number) for number in range(200)]
    records = records_of(table_of(points, Point), Point)
    times = records.whole_numbers("x") if stamped == "column" else stamped and [int(point.y) for point in points]
    parts = list(records.split(["x"], 128, 3, times) or ())
    assert [subtask for subtask, *_ in parts] == [0, 1, 2]
    for subtask, part, own in parts:
        expected = [point for point in points if subtask_of(point.x, 128, 3) == subtask]
        assert list(part) == expected
        assert (own and list(own)) == (times and [point.x if stamped == "column" else point.y for point in expected])


def test_batch_without_such_columns_is_not_split() -> None:
    points = [Point(1, 0.5), Point(2, 0.5)]
    assert RecordBatch(points).split(["x"], 128, 2) is None
    assert RecordBatch(records_of(table_of(points, Point), Point)).split(["z"], 128, 2) is None


def test_split_parts_do_not_keep_the_whole_table() -> None:
    records = records_of(table_of([Point(number % 50, 0.5) for number in range(10_000)], Point), Point)
    parts = [part for _, part, _ in records.split(["x"], 128, 3, None) or ()]
    assert sum(part.kept_bytes for part in parts) == records.kept_bytes == sum(part.table.nbytes for part in parts)


def test_subtasks_without_a_key_get_nothing() -> None:
    records = records_of(table_of([Point(5, 0.5)] * 3, Point), Point)
    assert [(subtask, len(part)) for subtask, part, _ in records.split(["x"], 128, 4, None) or ()] == [
        (subtask_of(5, 128, 4), 3)
    ]


def test_text_is_compressed() -> None:
    codec = Codec(TypeRegistry([Text]))
    records = records_of(table_of([Text("the same")] * 1_000, Text), Text)
    data = codec.dumps(records)
    assert len(data) < 6_000  # 8,000 letters, and 1,000 numbers of 4 bytes
    assert codec.loads(data, "test").rows() == [Text("the same")] * 1_000


@pytest.mark.parametrize("pieces", [[], [[Text("a")], [Text("b"), Text("c")]]], ids=["none", "two"])
def test_chunked_table_is_serialized_as_one(pieces: list[list[Text]]) -> None:
    codec = Codec(TypeRegistry([Text]))
    tables = [table_of(rows, Text) for rows in pieces]
    records = records_of(pa.concat_tables(tables) if tables else schema_of(Text).empty_table(), Text)
    assert codec.loads(codec.dumps(records), "test").rows() == [row for rows in pieces for row in rows]


def test_column_with_nulls_is_serialized() -> None:
    codec = Codec(TypeRegistry([Nullable]))
    records = records_of(table_of([Nullable(1), Nullable(None)], Nullable), Nullable)
    assert codec.loads(codec.dumps(records), "test").rows() == [Nullable(1), Nullable(None)]


def test_table_in_a_field_is_serialized() -> None:
    codec = Codec(TypeRegistry([]))
    table = table_of([Everything(True, 1, 0.5, "a", b"b", date.min, datetime.min, Decimal(1), [1], None)], Everything)
    assert codec.loads(codec.dumps({"waiting": [table]}), "test") == {"waiting": [table]}


def test_timestamps_must_be_integers_without_nulls() -> None:
    assert records_of(table_of([Nullable(1), Nullable(None)], Nullable), Nullable).whole_numbers("x") is None
    points = records_of(table_of([Point(1, 0.5)], Point), Point)
    assert points.whole_numbers("y") is points.whole_numbers("z") is None


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (attrgetter("x"), ("x",)),
        (attrgetter("x", "y"), ("x", "y")),
        (attrgetter("x.y"), None),
        (itemgetter(0), None),
        (lambda point: point.x, None),
    ],
)
def test_attrgetter_names_columns(selector: Callable[[Any], Any], names: tuple[str, ...] | None) -> None:
    assert column_names(selector) == names
