"""Awkward values in Avro, Protobuf and JSON: each is read as it was written, or refused with the name of its field."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from functools import partial
from typing import Any, Literal, NamedTuple, NewType
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, UninterpretedOption
from google.protobuf.struct_pb2 import Struct, Value
from google.protobuf.wrappers_pb2 import BytesValue, DoubleValue, FloatValue, Int64Value, StringValue

from dsv2.connectors.formats import (
    AvroDecoder,
    AvroEncoder,
    FormatError,
    JsonDecoder,
    JsonEncoder,
    ProtobufDecoder,
    ProtobufEncoder,
    avro_writing,
    json_schema,
)
from dsv2.errors import ConfigurationError

ZONE = ZoneInfo("America/New_York")
SURROGATE = "a\ud800"
TEXTS = [
    "",
    " x ",
    "\t\r\n\v\x85\u2028",
    '"\\N\\',
    "\ufeffone",
    "\0",
    "\u00e9",
    "e\u0301",
    "\U0001f600",
    "x" * 1_000_000,
]
PARIS = datetime(2024, 7, 1, 12, 30, 15, 123456, ZoneInfo("Europe/Paris"))


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1


class Tone(StrEnum):
    DARK = "dark"


class Access(Flag):
    READ = 1
    WRITE = 2


Cents = NewType("Cents", int)


def same(value: Any, found: Any) -> bool:
    """Return whether ``found`` is ``value``; NaN is equal to NaN, and a time to the same instant."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return isinstance(found, datetime) and (found - value.astimezone(UTC)) == timedelta(0)
    if isinstance(value, float | Decimal) and value != value:
        return bool(found != found)
    if isinstance(value, float) and value == 0:
        return isinstance(found, float) and math.copysign(1, found) == math.copysign(1, value)
    return bool(found == value) and not isinstance(found, bool) ^ isinstance(value, bool | np.bool_)


def field_of(annotation: Any) -> Any:
    """A record class with one field."""
    return dataclasses.make_dataclass("Kept", [("other", int), ("field", annotation)])


def named_tuple_of(annotation: Any) -> Any:
    fields = [("other", int), ("field", annotation)]
    return NamedTuple("Kept", fields)


# --- Avro ------------------------------------------------------------------------------------------------------------


def logical(primitive: str, kind: str, /, **more: Any) -> dict[str, Any]:
    return {"type": primitive, "logicalType": kind, **more}


MICROS, MILLIS = logical("long", "timestamp-micros"), logical("long", "timestamp-millis")
LOCAL, LOCAL_MILLIS = logical("long", "local-timestamp-micros"), logical("long", "local-timestamp-millis")
MONEY = logical("bytes", "decimal", precision=38, scale=2)
FIXED_MONEY = logical("fixed", "decimal", precision=4, scale=2, name="Money", size=2)
TIME, TIME_MILLIS, DATE = logical("long", "time-micros"), logical("int", "time-millis"), logical("int", "date")
ID, RAW = logical("string", "uuid"), {"type": "fixed", "name": "Raw", "size": 2}
COLOR = {"type": "enum", "name": "Color", "symbols": ["red", "blue"]}

AVRO_KEPT: list[tuple[Any, Any, list[Any]]] = [
    ("int", int, [-(2**31), 2**31 - 1, 0, Level.LOW, np.int64(7), np.uint8(255)]),
    ("long", int, [-(2**63), 2**63 - 1, 2**53 + 1, Cents(3), np.int32(-1), np.uint64(2**63 - 1)]),
    ("float", float, [0.5, -0.0, math.nan, math.inf, -math.inf, 2**24, np.float32(0.1), 2.0**-149]),
    (
        "double",
        float,
        [0.1, -0.0, 5e-324, math.nan, math.inf, 3, 2**60, np.float64(0.1), np.float32(0.1), np.float16(2)],
    ),
    ("boolean", bool, [True, False, np.bool_(True), np.bool_(False)]),
    ("string", str, [*TEXTS, np.str_("x"), Tone.DARK]),
    ("bytes", bytes, [b"", bytes(range(256)), bytearray(b"x"), np.bytes_(b"x")]),
    (RAW, bytes, [b"\0\xff"]),
    (MICROS, datetime, [PARIS, datetime(2023, 11, 5, 1, 30, fold=1, tzinfo=ZONE), datetime(1800, 1, 1, tzinfo=ZONE)]),
    (
        MICROS,
        datetime,
        [
            datetime.min.replace(tzinfo=UTC),
            datetime.max.replace(tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
        ],
    ),
    (MICROS, datetime, [pd.Timestamp("2024-01-01 12:00:00.000001", tz="America/New_York")]),
    (MILLIS, datetime, [PARIS.replace(microsecond=123000), datetime(1969, 12, 31, 23, 59, 59, 999000, UTC)]),
    (
        LOCAL,
        datetime,
        [
            datetime(2024, 3, 10, 2, 30),
            datetime.min,
            datetime.max,
            pd.Timestamp("2024-01-01"),
            np.datetime64("2024-01-01T00:00:01", "us"),
        ],
    ),
    (LOCAL_MILLIS, datetime, [datetime(2023, 11, 5, 1, 30), datetime(1, 1, 1)]),
    (DATE, date, [date.min, date.max, date(1969, 12, 31), np.datetime64("2024-02-29")]),
    (TIME, time, [time.min, time.max, time(1, 30, fold=1)]),
    (TIME_MILLIS, time, [time(23, 59, 59, 999000)]),
    (
        MONEY,
        Decimal,
        [
            Decimal("-1.1"),
            Decimal("1E+35"),
            Decimal("9" * 36 + ".99"),
            Decimal("1.500"),
            Decimal("-0"),
            Decimal("0E+99999"),
        ],
    ),
    (FIXED_MONEY, Decimal, [Decimal("99.99"), Decimal("-99.99"), Decimal("0.1")]),
    (ID, UUID, [UUID(int=0), UUID(int=2**128 - 1)]),
    (COLOR, Color, [Color.RED]),
    (COLOR, str, ["blue"]),
    ({"type": "array", "items": "double"}, list[float], [[], [0.1, math.inf], [np.float64(1)]]),
    ({"type": "array", "items": "int"}, tuple[int, ...], [(), (1, 2)]),
    ({"type": "map", "values": "int"}, dict[str, int], [{}, {"": 1, "\u00e9": 2}, {np.str_("k"): 1}]),
    (["null", "string"], str | None, [None, "", "null", "\u00e9", np.str_("x")]),
    (["float", "double", "int"], object, [0.5, 0.1, 3, 2**31 - 1, math.nan, 2**31, 1e300]),
    (["int", "long", "boolean"], object, [2**31, 2**31 - 1, True, False, np.int64(2**40), np.bool_(True)]),
    (["double", "long"], object, [2**53 + 1, 1, 0.5]),
    (["bytes", "string", "null"], object, ["", "\u00e9", b"\xff", None]),
    ([COLOR, "string"], object, ["red", "green"]),
    (["null", MICROS, DATE], object, [None, PARIS, date(2024, 1, 1)]),
    (["string", {"type": "array", "items": ["null", "string"]}], object, ["x", ["x", None], ["null", "x"]]),
    (["null", {"type": "map", "values": ["long", "string"]}], object, [{"a": 2**40, "b": "x"}]),
]

AVRO_REFUSED: list[tuple[Any, Any, list[Any], str]] = [
    ("int", int, [2**31, -(2**31) - 1, np.int64(2**31)],
     "Avro type int cannot hold: it has more than 32 bits. Use long"),
    ("long", int, [2**63, -(2**63) - 1, np.uint64(2**63)], "it has more than 64 bits. Use string"),
    ("long", int,
     [True, np.bool_(True), 1.0, 1.5, "7", None, np.float64(1), np.datetime64(1, "ns"), np.datetime64(1, "us")],
     "must be int, not "),
    ("float", float, [0.1, 1e300, 1e-46, 2**24 + 1], "it is not a 32-bit float. Use double"),
    ("double", float, [2**53 + 1, 10**400], "it has more than 53 bits"),
    ("double", float, [True, "1", None, Decimal(1), np.longdouble(1)], "must be float, not "),
    ("boolean", bool, [1, 0, "", None, np.int64(1)], "must be bool, not "),
    ("string", str, [SURROGATE], "it has a lone surrogate at position 1. Use bytes"),
    ("string", str, [b"x", 5, None, Color.RED, pd.NaT], "must be str, not "),
    ("bytes", bytes, ["x", None, np.array([1])], "must be bytes, not "),
    (RAW, bytes, [b"", b"abc"], "bytes, not 2"),
    (MICROS, datetime,
     [datetime(2024, 1, 1), datetime(2023, 11, 5, 1, 30, fold=1), pd.Timestamp("2024-01-01"), np.datetime64(1, "us")],
     "it has no time zone. Use local-timestamp-micros"),
    (MICROS, datetime, [pd.NaT, np.datetime64("NaT"), pd.Timestamp(1, tz="UTC"), date(2024, 1, 1), 0, None],
     "must be datetime, not "),
    (MICROS, datetime, [datetime.min.replace(tzinfo=timezone(timedelta(hours=1)))],
     "not in the years 1 to 9999 in UTC"),
    (MILLIS, datetime, [PARIS], "it has microseconds. Use timestamp-micros"),
    (LOCAL, datetime, [PARIS], "it has a time zone. Use timestamp-micros"),
    (LOCAL, datetime, [pd.NaT, np.datetime64("NaT", "us"), np.datetime64(1, "ns")], "must be datetime, not "),
    (DATE, date, [datetime(2024, 1, 1), pd.Timestamp("2024-01-01"), pd.NaT, "2024-01-01", 5], "must be date, not "),
    (TIME_MILLIS, time, [time.max], "it has microseconds. Use time-micros"),
    (TIME, time, [time(1, tzinfo=UTC)], "it has a time zone"),
    (MONEY, Decimal, [Decimal("1.001"), Decimal("1E+36"), Decimal("1E+999999"), Decimal("1E-999999")],
     "more than 38 digits, or more than 2 after the point"),
    (FIXED_MONEY, Decimal, [Decimal("100"), Decimal("-100")], "more than 4 digits"),
    (MONEY, Decimal, [Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")], "it is not finite"),
    (MONEY, Decimal, [1.5, 1, b"\1", "1"], "must be Decimal, not "),
    (ID, UUID, [str(UUID(int=1)), b"x" * 16], "must be UUID, not "),
    (COLOR, Color, ["red", 1, None, Tone.DARK], "no symbol of the enum"),
    (COLOR, str, ["green", Color.RED, []], "no symbol of the enum"),
    ({"type": "array", "items": "int"}, list[int], [(1,), {1: 2}, np.array([1]), "ab", {1}], "and not a list"),
    ({"type": "array", "items": "int"}, list[int], [[2**31]], "more than 32 bits"),
    ({"type": "array", "items": "int"}, tuple[int, ...], [[1]], "and not a tuple"),
    ({"type": "map", "values": "int"}, dict[str, int], [{1: 1}, {None: 1}], "must be str, not "),
    ({"type": "map", "values": "int"}, dict[str, int], [{SURROGATE: 1}], "lone surrogate"),
    ({"type": "map", "values": "int"}, dict[str, int], [[("a", 1)]], "must be a map"),
    (["null", "string"], str | None, [5, b"x", pd.NaT, math.nan], "fits no branch of the union"),
    (["null", "string"], str | None, [SURROGATE], "lone surrogate"),
    (["null", "int"], int | None, [2**31], "more than 32 bits"),
    (["null", "double"], float | None, [2**53 + 1], "more than 53 bits"),
    (["string", {"type": "array", "items": "string"}], object, [("string", "x")], "fits no branch of the union"),
    (["null", MICROS], datetime | None, [pd.NaT, datetime(2024, 1, 1)], "Kept.field is "),
]  # fmt: skip


def one_field(schema: Any) -> dict[str, Any]:
    fields = [{"name": "other", "type": "int"}, {"name": "field", "type": schema}]
    return {"type": "record", "name": "Kept", "fields": fields}


@pytest.mark.parametrize(
    ("schema", "annotation", "value"),
    [(schema, annotation, value) for schema, annotation, values in AVRO_KEPT for value in values],
    ids=lambda value: f"{value!r:.40}",
)
def test_avro_keeps(schema: Any, annotation: Any, value: Any) -> None:
    record, kind = one_field(schema), field_of(annotation)
    found = AvroDecoder(kind, schema=record)(AvroEncoder(kind, record)(kind(1, value))).field
    assert same(value, found), found
    if not isinstance(value, Color | tuple):  # dicts have symbols and lists
        found = AvroDecoder(dict, schema=record)(AvroEncoder(dict, record)({"other": 1, "field": value}))["field"]
        assert same(value, found), found


@pytest.mark.parametrize(
    ("schema", "annotation", "value", "told"),
    [(schema, annotation, value, told) for schema, annotation, values, told in AVRO_REFUSED for value in values],
    ids=lambda value: f"{value!r:.40}",
)
def test_avro_refuses(schema: Any, annotation: Any, value: Any, told: str) -> None:
    kind = field_of(annotation)
    with pytest.raises(FormatError) as refused:
        AvroEncoder(kind, one_field(schema))(kind(1, value))
    assert told in str(refused.value)
    assert "Kept.field is " in str(refused.value)


NAMES = {
    "type": "record",
    "name": "shop.Names",
    "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "int"]}],
}


class One(NamedTuple):
    x: float


class Other(NamedTuple):
    x: float


class Names(NamedTuple):
    a: int
    b: int | None
    c: int = 0


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"a": 1}, "has no field 'b', which the schema shop.Names has"),  # fastavro would write null
        ({"a": 1, "b": 2, "c": 3}, "the schema shop.Names has no field 'c'"),  # and drop a field
        ({"a": 1, "b": ("int", 2)}, "shop.Names.b is ('int', 2), which fits no branch"),  # and take a pair
        ([("a", 1), ("b", 2)], "is a list and not a dict"),
    ],
)
def test_avro_refuses_dicts_that_do_not_match(row: Any, told: str) -> None:
    with pytest.raises(FormatError) as refused:
        AvroEncoder(dict, NAMES)(row)
    assert told in str(refused.value)


def test_avro_refuses_dicts_in_place_of_records() -> None:
    schema = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "double"}]}
    with pytest.raises(FormatError, match=r"\{'x': 0.5\} is a dict and not a One"):
        AvroEncoder[Any](One | Other, schema)({"x": 0.5})  # type: ignore[arg-type]


def test_avro_refuses_classes_that_do_not_match() -> None:
    with pytest.raises(ConfigurationError, match=r"schema shop.Names has no field 'c', so that the value of Names.c"):
        AvroEncoder(Names, NAMES)
    with pytest.raises(ConfigurationError, match=r"Kept.field is a union with two branches of the same type"):
        AvroEncoder(dict, one_field(["long", MICROS]))
    for schema in (logical("int", "timestamp-micros"), logical("fixed", "uuid", name="Id", size=16)):  # not of fastavro
        for annotation in (datetime, UUID):
            with pytest.raises(ConfigurationError, match="does not fit the annotation"):
                AvroDecoder(field_of(annotation), schema=one_field(schema))


# --- JSON ------------------------------------------------------------------------------------------------------------


@dataclass
class Vague:
    x: float | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vague)


@dataclass(eq=False)
class Point:
    x: float
    label: str = ""


@dataclass
class Doubled:
    number: int

    def __post_init__(self) -> None:
        if self.number > 5:
            self.number = 5


JSON_KEPT: list[tuple[Any, list[Any]]] = [
    (int, [2**53 + 1, 2**64, -(10**400), np.int64(5), Cents(3)]),
    (float, [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1, 2**53, np.float64(0.1), np.float32(0.1)]),
    (float | None, [None, 0.5]), (bool, [True, np.bool_(False)]),
    (str, [*TEXTS, "null", np.str_("x"), Tone.DARK]),
    (bytes, [b"", bytes(range(256))]),
    (Decimal,
     [Decimal("1.10"), Decimal("1E+400"), Decimal("-0"), Decimal("9" * 76), Decimal("NaN"), Decimal("Infinity")]),
    (datetime, [datetime(2024, 3, 10, 2, 30), PARIS, datetime(2023, 11, 5, 1, 30, tzinfo=ZONE, fold=1), datetime.min]),
    (datetime, [datetime.max.replace(tzinfo=UTC), pd.Timestamp("2024-01-01 00:00:00.000001", tz="UTC")]),
    (date, [date.min, date.max]), (time, [time.max, time(1, tzinfo=UTC)]),
    (timedelta, [timedelta(microseconds=-1), timedelta.max // 2]),
    (UUID, [UUID(int=1)]), (Color, [Color.RED]),
    (Access, [Access(0), Access.READ | Access.WRITE]),
    (tuple[int, str], [(1, "x")]), (list[float], [[0.1, 1]]), (set[str], [{"a", "b"}, set()]),
    (dict[int, Decimal], [{1: Decimal("0.1")}]), (Point | None, [Point(0.5), None]),
    (object, [{"a": [1, 0.5, None, True, {"": "\u00e9"}]}, 2**64, [], {}]),
    (Literal["a", "b"], ["a"]),
]  # fmt: skip
JSON_REFUSED: list[tuple[Any, list[Any], str]] = [
    (float, [math.nan, math.inf, -math.inf, np.float64("nan")], "Expected `float`, got `null` - at `$.field`"),
    (float | None, [math.nan, math.inf], "Kept.field is "),
    (float, [2**53 + 1], "Kept.field is 9007199254740993, but would be read as 9007199254740992.0"),
    (str, [SURROGATE], "Kept.field is 'a\\ud800', which cannot be encoded"),
    (str, [b"abc"], "Kept.field is b'abc', but would be read as 'YWJj'"),
    (int, [True, 1.0, None, "7"], "at `$.field`"),
    (datetime, [pd.NaT, np.datetime64("NaT"), pd.Timestamp(1)], "Kept.field is "),
    (datetime, [datetime(1800, 1, 1, tzinfo=ZONE)], "Kept.field is datetime.datetime(1800"),  # seconds in the offset
    (list[int], [(1, 2)], "Kept.field is (1, 2), but would be read as [1, 2]"),
    (list[float], [[0.1, math.nan]], "at `$.field[1]`"),
    (list[float | None], [[0.1, math.nan]], "Kept.field[1] is nan, but would be read as None"),
    (
        object,
        [math.nan, Decimal("1"), b"a", (1,), {1}, {1: 2}, Color.RED, Point(1), UUID(int=1), PARIS],
        "Kept.field is ",
    ),
    (object, [{"a": {"b": [0, math.inf]}}], "Kept.field['a']['b'][1] is inf, but would be read as None"),
    (object, [{("a", 1): 2}, object(), np.array([1]), {SURROGATE: 1}, 1j], "Kept.field is "),
    (Point | None, [Point(math.nan)], "$.field"),
    (Vague, [Vague(math.nan)], "Kept.field.x is nan, but would be read as None"),
    (Literal["a", "b"], ["c"], "$.field"),
]


@pytest.mark.parametrize(
    ("annotation", "value"),
    [(annotation, value) for annotation, values in JSON_KEPT for value in values],
    ids=lambda value: f"{value!r:.40}",
)
def test_json_keeps(annotation: Any, value: Any) -> None:
    for kind in (field_of(annotation), named_tuple_of(annotation)):
        encode, decode = JsonEncoder(kind), JsonDecoder(kind)
        for _ in range(2):  # the second time by the fast way, if there is one
            found = decode(encode(kind(1, value))).field
            same_point = isinstance(value, Point) and (value.x, value.label) == (found.x, found.label)
            assert same_point or same(value, found), found


@pytest.mark.parametrize(
    ("annotation", "value", "told"),
    [(annotation, value, told) for annotation, values, told in JSON_REFUSED for value in values],
    ids=lambda value: f"{value!r:.40}",
)
def test_json_refuses(annotation: Any, value: Any, told: str) -> None:
    for kind in (field_of(annotation), named_tuple_of(annotation)):
        encode = JsonEncoder(kind)
        for _ in range(2):
            with pytest.raises(FormatError) as refused:
                encode(kind(1, value))
            assert told in str(refused.value)


def test_json_of_records_of_scalars_is_still_checked_after_the_first() -> None:
    encode = JsonEncoder(Point)
    assert encode(Point(0.5, "null")) == b'{"x":0.5,"label":"null"}'
    for point in (Point(math.nan), Point(math.inf, "null"), Point(0.5, SURROGATE), Point(None), Color.RED, {"x": 0.5}):  # type: ignore[arg-type]
        with pytest.raises(FormatError):
            encode(point)  # type: ignore[arg-type]
    limited = Doubled(1)
    encode_limited = JsonEncoder(Doubled)
    encode_limited(limited)
    limited.number = 7
    with pytest.raises(FormatError, match=r"Doubled.number is 7, but would be read as 5"):
        encode_limited(limited)


@pytest.mark.parametrize("value", [math.nan, {"a": math.nan}, [(1,)], {1: 2}, b"a"], ids=repr)
def test_json_of_dicts_and_single_values(value: Any) -> None:
    with pytest.raises(FormatError, match="would be read as"):
        JsonEncoder[Any](object)(value)
    assert JsonDecoder(dict)(JsonEncoder(dict)({"a": [1, None]})) == {"a": [1, None]}


@dataclass
class Either:
    one: Point | Doubled


def test_json_class_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="JsonEncoder: Either cannot be decoded from JSON"):
        JsonEncoder(Either)


@pytest.mark.parametrize(
    "data", [b"[" * 100_000, b'{"field": "x", "other": 1}', b"1" * 5000, b'"\xff"', b"\xef\xbb\xbf{}"]
)
def test_bytes_that_json_cannot_read_are_format_errors(data: bytes) -> None:
    with pytest.raises(FormatError):
        JsonDecoder(field_of(Decimal))(data)


# --- Protobuf --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        DoubleValue(value=-0.0),
        DoubleValue(value=math.inf),
        FloatValue(value=0.1),
        Int64Value(value=-(2**63)),
        Int64Value(value=np.int64(3)),  # type: ignore[arg-type]
        BytesValue(value=bytes(range(256))),
        *(StringValue(value=text) for text in TEXTS),
        Struct(fields={"\u00e9": Value(null_value=0), "": Value(number_value=0.5), "b": Value(bool_value=False)}),  # type: ignore[arg-type]
        FieldDescriptorProto(type=FieldDescriptorProto.TYPE_BOOL, json_name=""),  # which has presence
        FieldDescriptorProto(),
        FieldDescriptorProto.FromString(b"\x28\x7f"),  # an unknown number of a closed enumeration
        StringValue.FromString(b"\x0a\x01a\x9a\x06\x01b"),  # with an unknown field
    ],
    ids=lambda message: f"{message!r:.30}",
)
def test_protobuf_keeps(message: Any) -> None:
    data = ProtobufEncoder(type(message))(message)
    found = ProtobufDecoder(type(message))(data)
    assert found == message
    assert found.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)
    assert [field.name for field, _ in found.ListFields()] == [field.name for field, _ in message.ListFields()]


def test_protobuf_keeps_nan() -> None:
    assert math.isnan(ProtobufDecoder(DoubleValue)(ProtobufEncoder(DoubleValue)(DoubleValue(value=math.nan))).value)


def test_protobuf_refuses() -> None:
    with pytest.raises(FormatError, match="is missing required fields: name_part,is_extension"):
        ProtobufEncoder(UninterpretedOption.NamePart)(UninterpretedOption.NamePart())
    with pytest.raises(FormatError, match=r"google.protobuf.UninterpretedOption.NamePart"):
        ProtobufDecoder(UninterpretedOption.NamePart)(b"")
    with pytest.raises(FormatError, match=r"google.protobuf.StringValue"):
        ProtobufDecoder(StringValue)(b"\x0a\x01\xff")


# --- Fast path ------------------------------------------------------------------------------------------------------


def encoders(annotation: Any) -> list[tuple[Callable[[Any], bytes], Callable[[Any], Any]]]:
    """Encoders of a field with this annotation, and how their records are created."""
    kind = field_of(annotation)
    schemas = [one_field(schema) for schema, described, _ in AVRO_KEPT if described == annotation]
    avro = [(AvroEncoder(kind, schema), partial(kind, 1)) for schema in schemas]
    dicts = [(AvroEncoder(dict, schema), lambda value: {"other": 1, "field": value}) for schema in schemas]
    return [*avro, *dicts, (JsonEncoder(kind), partial(kind, 1))]


def result(encode: Callable[[Any], bytes], record: Any) -> bytes | str:
    try:
        return encode(record)
    except FormatError as error:
        return str(error)


@pytest.mark.parametrize(
    "annotation", [bool, int, float, str, bytes, datetime, date, time, UUID, Decimal, str | None, list[int], list[str]]
)
def test_fast_path_has_the_result_of_the_checks(annotation: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    values = [value for _, _, values in AVRO_KEPT for value in values if value != TEXTS[-1]]
    values += [value for _, _, values, _ in AVRO_REFUSED for value in values]
    values += [value for _, values in JSON_KEPT for value in values if isinstance(value, list)] + [[True], [1, "a"]]
    fast = [[result(encode, record(value)) for value in values] for encode, record in encoders(annotation)]
    for module in (avro_writing, json_schema):
        monkeypatch.setattr(module, "with_fast_path", lambda encode, checked, *args, **options: checked)
    assert [[result(encode, record(value)) for value in values] for encode, record in encoders(annotation)] == fast


# --- Processes -------------------------------------------------------------------------------------------------------

PROGRAM = """
from datetime import datetime, timezone
from google.protobuf.struct_pb2 import Struct
from dsv2.connectors.formats import AvroEncoder, FormatError, JsonEncoder, ProtobufEncoder
from tests.unit.connectors.formats.test_format_values import LOCAL, MICROS, field_of, one_field

naive, zoned = datetime(2023, 11, 5, 1, 30, fold=1), datetime(2024, 1, 1, tzinfo=timezone.utc)
Naive, Sets = field_of(datetime), field_of(set[str])
print(AvroEncoder(Naive, one_field(LOCAL))(Naive(1, naive)), AvroEncoder(Naive, one_field(MICROS))(Naive(1, zoned)))
try:
    AvroEncoder(Naive, one_field(MICROS))(Naive(1, naive))
except FormatError as error:
    print(error)
print(JsonEncoder(Naive)(Naive(1, naive)), JsonEncoder(Sets)(Sets(1, set("abcdefgh"))))
struct = Struct()
struct.update({letter: 1 for letter in "hgfedcba"})
print(ProtobufEncoder(Struct)(struct))
"""


def test_bytes_do_not_depend_on_the_process() -> None:
    """Workers in another time zone, or with another hash seed, would write other values and choose other partitions."""
    outputs = set()
    for zone, seed in (("UTC", "1"), ("America/New_York", "2")):
        environment = {**os.environ, "TZ": zone, "PYTHONHASHSEED": seed}
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
        )
        outputs.add(run.stdout)
    (output,) = outputs
    assert "has no time zone" in output
    assert '"field":["a","b","c","d","e","f","g","h"]' in output
