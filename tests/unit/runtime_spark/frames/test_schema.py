"""Record types as Spark schemas, and records as Arrow data and back. Requires PySpark, but no session."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NewType, Optional

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from dsv2.arrow import records_of
from dsv2.arrow.records import table_of
from dsv2.arrow.sink_columns import batch_of
from dsv2.errors import SchemaError
from dsv2.file_log.schema import fields_of
from runtime_spark.frames.schema import RecordReader, SparkRecordWriter, check_readable, schema_of

if TYPE_CHECKING:
    Unresolvable = int

BERLIN = "Europe/Berlin"
NOON = datetime(2024, 7, 1, 12, tzinfo=UTC)
Topic = NewType("Topic", str)


class Color(Enum):
    RED = 1


@dataclass(frozen=True)
class Everything:
    flag: bool
    count: int
    ratio: float
    name: str
    raw: bytes
    day: date
    at: datetime
    price: Decimal
    maybe: int | None
    perhaps: Optional[str]  # noqa: UP045 - the old way to say it
    tags: list[str]
    gaps: list[int | None]
    counts: dict[str, int]
    nested: dict[str, list[float]]


EVERYTHING = Everything(
    True, 7, 0.5, "é", b"\0", date(2024, 7, 1), NOON, Decimal("1.25"), None, "x", [], [1, None], {"a": 1}, {"b": [0.5]}
)


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class OneField:
    value: int


@dataclass(kw_only=True)
class ByKeyword:
    name: str
    count: int
    seen: bool = dataclasses.field(default=True, init=False)


@dataclass
class WithColor:
    color: Color


@dataclass
class WithPoint:
    point: Point


@dataclass
class WithAny:
    anything: Any
    topic: Topic
    level: Literal["low", "high"]


@dataclass
class WithUnresolvable:
    value: Unresolvable


BOOL, INT, LONG, DOUBLE, STRING = t.BooleanType(), t.IntegerType(), t.LongType(), t.DoubleType(), t.StringType()
DAY, TIME = t.DateType(), t.TimestampType()


def table(**columns: t.DataType) -> t.StructType:
    """A schema. DDL strings would need a session."""
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def struct_of(schema: type | t.StructType) -> t.StructType:
    return schema if isinstance(schema, t.StructType) else schema_of(schema)


def writer(schema: type | t.StructType, time_zone: str = "UTC") -> SparkRecordWriter:
    return SparkRecordWriter(struct_of(schema), "The sink out, defined at main.py:7", time_zone)


def written(schema: type | t.StructType, *records: Any, time_zone: str = "UTC") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = writer(schema, time_zone).write(records).to_pylist()
    return rows


# --- Schemas ----------------------------------------------------------------------------------------------------------


def test_every_field_has_a_column() -> None:
    expected = {
        "flag": BOOL,
        "count": LONG,
        "ratio": DOUBLE,
        "name": STRING,
        "raw": t.BinaryType(),
        "day": DAY,
        "at": TIME,
        "price": t.DecimalType(38, 18),
        "maybe": LONG,
        "perhaps": STRING,
        "tags": t.ArrayType(STRING, False),
        "gaps": t.ArrayType(LONG, True),
        "counts": t.MapType(STRING, LONG, False),
        "nested": t.MapType(STRING, t.ArrayType(DOUBLE, False), False),
    }
    fields = [t.StructField(name, kind, name in ("maybe", "perhaps")) for name, kind in expected.items()]
    assert schema_of(Everything) == t.StructType(fields)


def test_named_tuple_has_a_schema() -> None:
    assert schema_of(Point) == t.StructType([t.StructField("x", LONG, False), t.StructField("y", LONG, False)])


def test_fields_of_a_record_type_are_its_constructor_arguments() -> None:
    assert list(fields_of(ByKeyword)) == ["name", "count"]
    assert fields_of(Point) == {"x": int, "y": int}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            WithColor,
            r"Field 'color' of WithColor has type <enum 'Color'>, for which there is no column type. Use bool,",
        ),
        (WithPoint, r"Field 'point' of WithPoint has type .*Point'>, for which there is no column type"),
        (int, r"int has no fields with types. Use a dataclass or a NamedTuple class, or a DDL string"),
        (tuple, r"tuple has no fields with types"),
        (WithUnresolvable, r"The field types of WithUnresolvable cannot be resolved: name 'Unresolvable' is not def"),
    ],
)
def test_invalid_schema_is_refused(schema: type, said: str) -> None:
    with pytest.raises(SchemaError, match=f"^{said}"):
        schema_of(schema)


# --- Reading ----------------------------------------------------------------------------------------------------------


def test_dataframe_must_have_the_fields_of_the_record_type() -> None:
    check_readable(Everything, schema_of(Everything), None)
    check_readable(Point, table(more=STRING, y=t.ByteType(), x=t.ShortType()), "more")
    for kind in (t.ArrayType(INT), table(a=INT)):
        check_readable(WithAny, table(anything=kind, topic=STRING, level=STRING), None)
        check_readable(dict, table(anything=kind), None)
        check_readable(Row, table(anything=kind), None)


@pytest.mark.parametrize(
    ("record_type", "columns", "said"),
    [
        (Point, table(x=INT), "it has no column 'y'"),
        (Point, table(x=INT, y=STRING), "column 'y' is string, but the field is int"),
        (
            Point,
            table(x=DOUBLE, y=BOOL),
            "column 'x' is double, but the field is int; column 'y' is boolean, but the field is",
        ),
        (OneField, table(value=t.DecimalType(10, 0)), "column 'value' is decimal(10,0), but the field is int"),
        (WithColor, table(color=INT), "column 'color' is int, but the field is Color"),
        (WithPoint, table(point=table(x=INT)), "column 'point' is struct<x:int>, but the field is Point"),
        (Everything, table(tags=t.ArrayType(INT)), "column 'tags' is array<int>, but the field is list[str]"),
        (Everything, table(maybe=STRING), "column 'maybe' is string, but the field is int | None"),
    ],
)
def test_mismatched_dataframe_is_refused(record_type: type, columns: t.StructType, said: str) -> None:
    with pytest.raises(SchemaError) as refused:
        check_readable(record_type, columns, None)
    text = str(refused.value)
    assert text.startswith(f"the DataFrame does not fit {record_type.__name__}: ")
    assert said in text
    names = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in columns)
    assert text.endswith(f". Its columns are {names}; select or cast them.")


@pytest.mark.parametrize(
    ("hint", "column", "fits"),
    [
        (list[int], t.ArrayType(INT), True), (list[int], t.ArrayType(STRING), False), (list[int], INT, False),
        (list[list[str | None]], t.ArrayType(t.ArrayType(STRING)), True),
        (list, t.ArrayType(STRING), True),
        (dict[str, int], t.MapType(STRING, INT), True),
        (dict[str, int], t.MapType(STRING, STRING), False),
        (dict[str, int], t.MapType(INT, INT), False),
        (dict[str, int], STRING, False), (dict, t.MapType(INT, INT), True), (dict[str, Any], table(a=INT), True),
        (tuple[int, ...], t.ArrayType(INT), False), (datetime, t.TimestampNTZType(), True), (datetime, DAY, False),
        (date, TIME, False), (str, t.VarcharType(3), True), (int | str, STRING, True), (Topic, STRING, True),
    ],
)  # fmt: skip
def test_field_types_must_hold_the_column_values(hint: Any, column: t.DataType, fits: bool) -> None:
    record_type = dataclasses.make_dataclass("Record", [("field", hint)])
    if fits:
        check_readable(record_type, table(field=column), None)
        return
    with pytest.raises(SchemaError, match="column 'field' is "):
        check_readable(record_type, table(field=column), None)


def test_split_by_must_be_a_column() -> None:
    with pytest.raises(SchemaError, match=r"^split_by names column 'z'; the DataFrame has x, y\.$"):
        check_readable(dict, schema_of(Point), "z")


def test_records_survive_writing_and_reading() -> None:
    batch = writer(Everything, BERLIN).write([EVERYTHING, EVERYTHING])
    records = RecordReader(Everything, batch.schema.names).read(batch)
    assert records == [EVERYTHING] * 2
    assert records[0].at.utcoffset() == timedelta(hours=2)


def test_record_types_read_the_columns_they_name() -> None:
    batch = writer(table(more=STRING, y=LONG, x=LONG)).write([("a", 1, 2), ("b", 3, None)])
    names = batch.schema.names
    assert RecordReader(Point, names).read(batch) == [Point(2, 1), Point(None, 3)]  # type: ignore[arg-type]
    assert RecordReader(dict, names).read(batch) == [{"more": "a", "y": 1, "x": 2}, {"more": "b", "y": 3, "x": None}]
    assert RecordReader(Row, names).read(batch) == [Row(more="a", y=1, x=2), Row(more="b", y=3, x=None)]
    assert RecordReader(Row, names).read(batch)[0].asDict() == {"more": "a", "y": 1, "x": 2}
    assert RecordReader(Point, names).columns == ["x", "y"]
    assert RecordReader(dict, names).columns == ["more", "y", "x"]


def test_keyword_only_record_type_is_read() -> None:
    batch = writer(table(count=LONG, name=STRING)).write([(1, "a")])
    assert RecordReader(ByKeyword, batch.schema.names).read(batch) == [ByKeyword(name="a", count=1)]


def test_maps_are_read_as_dicts_at_any_depth() -> None:
    value = {"a": [{"b": 1}, {}], "c": None}
    counts = t.MapType(STRING, LONG)
    batch = writer(table(deep=t.MapType(STRING, t.ArrayType(counts)), within=table(of=counts))).write(
        [(value, {"of": {"d": 2}}), (None, None)]
    )
    assert RecordReader(dict, batch.schema.names).read(batch) == [
        {"deep": value, "within": {"of": {"d": 2}}},
        {"deep": None, "within": None},
    ]


# --- Writing ----------------------------------------------------------------------------------------------------------


def test_tuples_are_written_by_position_and_others_by_name() -> None:
    by_name = [{"y": 2, "x": 1}]
    schema = table(y=LONG, x=LONG)
    assert written(schema, (2, 1)) == by_name
    assert written(schema, Point(x=1, y=2)) == by_name
    assert written(schema, Row(x=1, y=2)) == by_name
    assert written(schema, {"x": 1, "y": 2, "more": 3}) == by_name
    assert written(Point, Point(1, 2)) == written(table(x=LONG, y=LONG), (1, 2)) == [{"x": 1, "y": 2}]
    assert written(OneField, OneField(7)) == written(OneField, (7,)) == [{"value": 7}]


@pytest.mark.parametrize(
    ("schema", "record", "said"),
    [
        (Point, Point("a", 1), "Could not convert 'a' with type str"),  # type: ignore[arg-type]
        (Point, Point(None, 1), "field 'x' must not be None"),  # type: ignore[arg-type]
        (Point, Point(1.5, 1), "field 'x' is int64: the float 1.5 would be changed"),  # type: ignore[arg-type]
        (Point, Point(Decimal("1.5"), 1), "field 'x' is int64: the Decimal .* would be changed"),  # type: ignore[arg-type]
        (table(day=DAY), (Decimal("1.5"),), r"field 'day' is date32\[day\]: the Decimal .* would be changed"),
        (Point, Point(2**63, 1), "int too large"),
        (Point, (1, 2, 3), ": it has 3 values$"),
        (Point, (1,), ": it has 1 values$"),
        (Point, {"x": 1}, "it has no 'y'"),
        (Point, OneField(1), "'OneField' object has no attribute 'x'"),
        (Point, "text", "'str' object has no attribute 'x'"),
        (table(day=DAY), (NOON,), r"field 'day' is date32\[day\]: the datetime .* would be changed"),
        (table(price=t.DecimalType(4, 2)), (Decimal("1.125"),), "would cause data loss"),
        (table(tags=t.ArrayType(STRING)), (["a", 1],), "Expected bytes, got a 'int' object"),
        (Everything, dataclasses.replace(EVERYTHING, tags=[None]), "field 'tags' must not contain None"),  # type: ignore[list-item]
        (Everything, dataclasses.replace(EVERYTHING, counts={"a": None}), "field 'counts' must not contain None"),  # type: ignore[dict-item]
    ],
)
def test_invalid_record_is_named_with_its_sink(schema: Any, record: Any, said: str) -> None:
    writes = writer(schema)
    good = Point(1, 2) if schema is Point else EVERYTHING if schema is Everything else (None,)
    with pytest.raises(SchemaError, match=said) as refused:
        writes.write([good, record, good])
    text = f"{record!r:.200}"
    assert str(refused.value).startswith(f"The sink out, defined at main.py:7: record {text} does not fit the schema ")
    assert all(name in str(refused.value) for name in writes.schema.fieldNames())


def test_naive_datetime_is_in_the_session_time_zone() -> None:
    naive, tokyo = datetime(2024, 7, 1, 14), NOON.astimezone(timezone(timedelta(hours=9)))
    assert written(table(at=TIME), (naive,), (NOON,), (tokyo,), (None,), time_zone=BERLIN) == [
        *({"at": NOON} for _ in range(3)),
        {"at": None},
    ]
    assert written(table(at=TIME), (naive,)) == [{"at": naive.replace(tzinfo=UTC)}]
    assert written(table(at=TIME), (naive,), time_zone="+02:00") == [{"at": NOON}]
    assert written(table(at=t.TimestampNTZType()), (naive,), time_zone=BERLIN) == [{"at": naive}]


def test_written_batch_has_the_schema_of_the_sink() -> None:
    batch = writer(Everything, BERLIN).write([EVERYTHING])
    assert batch.schema.names == schema_of(Everything).fieldNames()
    assert [field.name for field in batch.schema if field.nullable] == ["maybe", "perhaps"]
    assert batch.schema.field("at").type == pa.timestamp("us", BERLIN)


class Flat(NamedTuple):
    """A column of each type that is written unchanged, and a list."""

    flag: bool
    number: int
    ratio: float
    name: str
    raw: bytes
    day: date
    at: datetime
    price: Decimal
    maybe: int | None
    tags: list[str | None]


FLAT = Flat(
    True, 7, 0.5, "é", b"\0", date(2024, 7, 1), datetime(2024, 7, 1, 12), Decimal("1.250000000000000000"), None, ["a"]
)
SUMMER_ENDS = datetime(2024, 10, 27, 2, 30)  # occurs twice in Berlin


@pytest.mark.parametrize(
    ("schema", "rows"),
    [
        (Flat, [FLAT, FLAT._replace(maybe=3)]),
        (table(number=t.LongType(), name=STRING), [FLAT]),
        (table(name=STRING, number=INT, at=t.TimestampNTZType(), maybe=t.ByteType()), [FLAT]),
        (table(at=TIME), [FLAT._replace(at=SUMMER_ENDS)]),
        (table(number=DOUBLE, ratio=t.FloatType()), [FLAT]),
    ],
    ids=["class", "fewer", "narrower", "an hour that comes twice", "other numbers"],
)
def test_columns_are_written_like_records(schema: type | t.StructType, rows: list[Flat]) -> None:
    records = records_of(table_of(rows, Flat), Flat)
    assert writer(schema, BERLIN).write(records).equals(writer(schema, BERLIN).write(rows))


@pytest.mark.parametrize(
    ("schema", "row"),
    [
        (table(number=t.ByteType()), FLAT._replace(number=300)),
        (t.StructType([t.StructField("maybe", t.LongType(), False)]), FLAT),
        (table(ratio=INT), FLAT._replace(ratio=1.0)),
        (table(name=DAY), FLAT),
        (table(other=INT), FLAT),
        (table(tags=t.ArrayType(STRING, False)), FLAT._replace(tags=[None])),
    ],
    ids=["too large", "none", "truncated", "other kind", "missing", "none within"],
)
def test_mismatched_columns_are_refused_like_records(schema: t.StructType, row: Flat) -> None:
    refused = []
    for records in ([row], records_of(table_of([row], Flat), Flat)):
        with pytest.raises(SchemaError) as raised:
            writer(schema, BERLIN).write(records)
        refused.append(str(raised.value))
    assert refused[0] == refused[1]
    assert "record Flat(" in refused[0]


@dataclass
class Sealed:
    """Cannot be constructed."""

    number: int
    at: datetime

    def __post_init__(self) -> None:
        raise AssertionError("single records are not expected")


def test_matching_columns_do_not_become_records() -> None:
    table = pa.table({"number": [1], "at": [FLAT.at]})
    assert writer(Sealed, BERLIN).write(records_of(table, Sealed)).num_rows == 1
    twice = pa.table({"number": [1], "at": [SUMMER_ENDS]})
    assert batch_of(twice, to_arrow_schema(schema_of(Sealed), timezone=BERLIN)) is None


def test_records_of_different_classes_are_written_by_name() -> None:
    assert written(Point, Point(1, 2), {"y": 2, "x": 1}, Row(y=2, x=1), (1, 2)) == [{"x": 1, "y": 2}] * 4


@pytest.mark.parametrize(("zone", "at"), [("America/New_York", datetime.min), (BERLIN, datetime.max)])
def test_times_outside_of_the_years_of_the_session(zone: str, at: datetime) -> None:
    column = pa.array([at.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", zone))
    with pytest.raises(SchemaError, match=r"Column 'at' .* set spark\.sql\.session\.timeZone"):
        RecordReader(dict, ["at"]).read(pa.record_batch([column], ["at"]))
