"""Avro decoders and encoders: classes, evolution, errors."""

from __future__ import annotations

import dataclasses
import io
import json
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, NewType
from uuid import UUID

import fastavro
import pytest
from fastavro.logical_readers import LOGICAL_READERS
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import CollectSink
from dsv2.connectors.files import FilesSource
from dsv2.connectors.formats import AvroDecoder, AvroEncoder, FormatError, avro_files
from dsv2.errors import ConfigurationError, UserFunctionError
from tests.support import local_environment

Cents = NewType("Cents", int)


def record(name: str, *fields: tuple[Any, ...]) -> dict[str, Any]:
    parts = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) > 2 else {})} for f in fields]
    return {"type": "record", "name": name, "namespace": "shop", "fields": parts}


ORDER = record("Order", ("customer", "long"), ("cents", "long"), ("note", ["null", "string"], None))


class Order(NamedTuple):
    customer: int
    cents: Cents
    note: str | None = None


@dataclass
class OrderAsDataclass:
    customer: int
    cents: Cents
    note: str | None = None


@dataclass(kw_only=True)
class OrderByKeyword:
    customer: int
    cents: Cents
    note: str | None = None


@pytest.mark.parametrize(
    ("kind", "order"),
    [
        (Order, Order(7, Cents(250), "soon")),
        (OrderAsDataclass, OrderAsDataclass(7, Cents(250), "soon")),
        (OrderByKeyword, OrderByKeyword(customer=7, cents=Cents(250), note="soon")),
        (dict, {"customer": 7, "cents": 250, "note": "soon"}),
        (Mapping, {"customer": 7, "cents": 250, "note": "soon"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_classes_of_records(kind: Any, order: Any) -> None:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, ORDER, {"customer": 7, "cents": 250, "note": "soon"})
    assert AvroEncoder(kind, ORDER)(order) == stream.getvalue()
    assert AvroDecoder(kind, schema=json.dumps(ORDER))(stream.getvalue()) == order


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Line(NamedTuple):
    item: str
    pieces: int = 1


@dataclass(frozen=True)
class Everything:
    at: datetime
    day: date
    hour: time
    price: Decimal
    number: UUID
    color: Color
    share: float
    raw: bytes
    lines: tuple[Line, ...]
    by_name: dict[str, Line | None]
    either: Line | str
    names: Sequence[str]
    parent: Everything | None = None
    tags: list[list[Color]] = field(default_factory=list)
    anything: object = None


EVERYTHING = record(
    "Everything",
    ("at", {"type": "long", "logicalType": "timestamp-micros"}),
    ("day", {"type": "int", "logicalType": "date"}),
    ("hour", {"type": "int", "logicalType": "time-millis"}),
    ("price", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}),
    ("number", {"type": "string", "logicalType": "uuid"}),
    ("color", {"type": "enum", "name": "Color", "symbols": ["RED", "blue"]}),
    ("share", "double"),
    ("raw", {"type": "fixed", "name": "Raw", "size": 2}),
    ("lines", {"type": "array", "items": record("Line", ("item", "string"), ("pieces", "int"))}),
    ("by_name", {"type": "map", "values": ["null", "Line"]}),
    ("either", ["string", "Line"]),
    ("names", {"type": "array", "items": "string"}),
    ("parent", ["null", "Everything"]),
    ("tags", {"type": "array", "items": {"type": "array", "items": "Color"}}),
    ("anything", ["null", "int", "string"]),
)
LINES = st.builds(Line, st.text(), st.integers(-(1 << 31), (1 << 31) - 1))
EVERYTHINGS = st.recursive(
    st.none(),
    lambda parents: st.builds(
        Everything,
        at=st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1), timezones=st.just(UTC)),
        day=st.dates(),
        hour=st.times().map(lambda value: value.replace(microsecond=value.microsecond // 1000 * 1000)),
        price=st.integers(-(10**9), 10**9).map(lambda cents: Decimal(cents).scaleb(-2)),
        number=st.uuids(),
        color=st.sampled_from(Color),
        share=st.floats(allow_nan=False),
        raw=st.binary(min_size=2, max_size=2),
        lines=st.lists(LINES, max_size=3).map(tuple),
        by_name=st.dictionaries(st.text(), LINES | st.none(), max_size=3),
        either=LINES | st.text(),
        names=st.lists(st.text(), max_size=2),
        parent=parents,
        tags=st.lists(st.lists(st.sampled_from(Color), max_size=2), max_size=2),
        anything=st.none() | st.integers(0, 9) | st.text(max_size=3),
    ),
    max_leaves=3,
).filter(lambda value: value is not None)


@given(EVERYTHINGS)
def test_every_type_returns_as_it_was_written(value: Everything) -> None:
    assert AvroDecoder(Everything, schema=EVERYTHING)(AvroEncoder(Everything, EVERYTHING)(value)) == value


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_values_that_are_not_records(number: int) -> None:
    assert AvroDecoder(int, schema='"long"')(AvroEncoder(int, '"long"')(number)) == number


def test_values_of_named_schemas_that_are_not_records() -> None:
    schema = ["null", ORDER, {"type": "array", "items": "shop.Order"}]
    encoder, decoder = AvroEncoder[Any](object, json.dumps(schema)), AvroDecoder[Any](object, schema=json.dumps(schema))
    order = {"customer": 7, "cents": 250, "note": None}
    assert [decoder(encoder(value)) for value in (None, order, [order])] == [None, order, [order]]
    only = json.dumps([ORDER])
    assert AvroDecoder(Order, schema=only)(AvroEncoder(Order, only)(Order(1, Cents(2)))) == Order(1, Cents(2))


# --- Evolution -------------------------------------------------------------------------------------------------------


def test_class_may_have_less_fields_and_more_with_defaults() -> None:
    newer = record("Order", ("customer", "long"), ("cents", "long"), ("channel", "string"))
    encoded = AvroEncoder(dict, newer)({"customer": 7, "cents": 250, "channel": "web"})
    assert AvroDecoder(Order, schema=newer)(encoded) == Order(7, Cents(250), None)


@dataclass
class One:
    cents: int


def test_record_with_one_field() -> None:
    encoded = AvroEncoder(Order, ORDER)(Order(7, Cents(250)))
    assert AvroDecoder(One, schema=ORDER)(encoded) == One(250)
    only = record("One", ("cents", "long"))
    assert AvroDecoder(One, schema=only)(AvroEncoder(One, only)(One(3))) == One(3)


def test_record_without_fields() -> None:
    empty = record("Empty")
    assert AvroDecoder(dict, schema=empty)(AvroEncoder(dict, empty)({})) == {}


# --- Mismatches ------------------------------------------------------------------------------------------------------


@dataclass
class Wrong:
    customer: str
    cents: int


@dataclass
class NeverNull:
    note: str


@dataclass
class Required:
    customer: int
    channel: str


@dataclass
class TwoClasses:
    either: Line | Order


@dataclass
class ColorOrText:
    color: Color | str


@dataclass
class Colored:
    color: Color


EITHER = record(
    "TwoClasses", ("either", [record("Line", ("item", "string"), ("pieces", "int")), {**ORDER, "name": "Order2"}])
)


@pytest.mark.parametrize(
    ("kind", "schema", "told"),
    [
        (Wrong, ORDER, "Wrong.customer has the Avro type long, which does not fit the annotation str"),
        (NeverNull, ORDER, "NeverNull.note has the Avro type null, which does not fit the annotation str"),
        (Required, ORDER, "the schema shop.Order has no field 'channel', which Required requires. Give the field a"),
        (TwoClasses, EITHER,
         "TwoClasses.either is a union of several records, which cannot be distinguished. Declare it as dict"),
        (ColorOrText, record("ColorOrText", ("color", ["string", {"type": "enum", "name": "C", "symbols": ["RED"]}])),
         "ColorOrText.color is a union whose values cannot be distinguished. Declare it as object"),
        (int, ORDER, "int has the Avro type shop.Order, which does not fit the annotation int"),
        (Colored, record("Colored", ("color", {"type": "enum", "name": "C", "symbols": ["RED", "GREEN"]})),
         "Colored.color: Color has no member for the symbol 'GREEN' of shop.C"),
    ],
)  # fmt: skip
def test_class_that_does_not_match_is_refused_when_the_decoder_is_created(kind: Any, schema: Any, told: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^AvroDecoder: ") as refused:
        AvroDecoder(kind, schema=schema)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "schema", "told"),
    [
        (One, ORDER, "AvroEncoder: One has no field 'customer', which the schema shop.Order has"),
        (Wrong, ORDER, "AvroEncoder: Wrong.customer has the Avro type long, which does not fit the annotation str"),
        (dict, "{", "AvroEncoder: the schema is not valid: JSONDecodeError"),
        (dict, '"strnig"', "AvroEncoder: the schema is not valid: UnknownType: strnig"),
    ],
)
def test_encoder_checks_its_schema(kind: Any, schema: Any, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        AvroEncoder(kind, schema)
    assert told in str(refused.value)


def test_field_that_the_class_lacks_gets_the_default_of_the_schema() -> None:
    schema = record("One", ("cents", "long"), ("channel", "string", "web"))
    assert AvroDecoder(dict, schema=schema)(AvroEncoder(One, schema)(One(3))) == {"cents": 3, "channel": "web"}


GOOD = AvroEncoder(Order, ORDER)(Order(7, Cents(250), "soon"))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", r"EOFError \(shop.Order\)"),
        (GOOD[:-1], r"\(shop.Order\)"),
        (GOOD + b"!", r"1 bytes remain after the record \(shop.Order\)"),
        (GOOD + b"\0" * 9, r"9 bytes remain"),
    ],
)
def test_bytes_that_do_not_match_name_the_schema(data: bytes, told: str) -> None:
    with pytest.raises(FormatError, match=told):
        AvroDecoder(Order, schema=ORDER)(data)


def test_record_that_does_not_match_is_named() -> None:
    with pytest.raises(FormatError, match=r"Order\(customer='x'.*\) does not match the schema shop.Order: .*customer"):
        AvroEncoder(Order, ORDER)(Order("x", Cents(1)))  # type: ignore[arg-type]


def test_schema_or_registry_is_required() -> None:
    with pytest.raises(ConfigurationError, match="requires a registry, a schema, or both"):
        AvroDecoder(Order)


def test_decimals_with_more_digits_than_the_schema_says_are_not_rounded(tmp_path: Path) -> None:
    """As in Java. fastavro rounds them."""
    money = {"type": "fixed", "name": "Money", "size": 4, "logicalType": "decimal", "precision": 4, "scale": 2}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    prices = record("Prices", ("a", money), ("b", ["null", "Money"]), ("c", {"type": "array", "items": price}))
    stream, digits = io.BytesIO(), (123456789).to_bytes(4, "big")
    row = {"a": digits, "b": digits, "c": [digits]}
    fastavro.schemaless_writer(stream, prices, row)
    expected = {"a": Decimal("1234567.89"), "b": Decimal("1234567.89"), "c": [Decimal("1234567.89")]}
    for _ in range(2):
        assert AvroDecoder(dict, schema=prices)(stream.getvalue()) == expected
    with pytest.raises(FormatError, match="more than 4 digits"):  # writing still knows the precision
        AvroEncoder(dict, prices)(expected)
    only = json.dumps(["null", money])
    assert AvroDecoder[Any](object, schema=only)(b"\x02" + digits) == Decimal("1234567.89")
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, prices, [row])
    env, sink = local_environment(), CollectSink[Any]()
    env.from_source(FilesSource(tmp_path, avro_files(dict))).to_sink(sink)
    env.execute()
    assert sink.results == [expected]


def test_logical_types_of_the_library_are_known() -> None:
    """fastavro reads another logical type as its primitive type, and so do encoders and the comparison with classes."""
    known = {"decimal", "uuid", "date", "time-millis", "time-micros"}
    known |= {f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros")}
    found = {key.split("-", 1)[1] for key in LOGICAL_READERS if not key.startswith("record-")}  # of Confluent's client
    assert found == known


# --- In a job --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("used", "argument"), [(AvroDecoder(Order, schema=ORDER), GOOD), (AvroEncoder(Order, ORDER), Order(1, Cents(2)))]
)
def test_workers_get_them_without_what_was_learned(used: Callable[[Any], Any], argument: Any) -> None:
    fresh = pickle.dumps(used)
    result = used(argument)
    assert pickle.dumps(used) == fresh
    assert pickle.loads(fresh)(argument) == result  # noqa: S301


def test_classes_may_refer_to_themselves() -> None:
    schema = record("Node", ("value", "int"), ("next", ["null", "Node"]))
    nested = Node(1, Node(2, Node(3)))
    assert AvroDecoder(Node, schema=schema)(AvroEncoder(Node, schema)(nested)) == nested
    assert dataclasses.asdict(nested) == AvroDecoder(dict, schema=schema)(AvroEncoder(Node, schema)(nested))


@dataclass
class Node:
    value: int
    next: Node | None = None


# --- Files -----------------------------------------------------------------------------------------------------------


def read_files(folder: Path, **options: Any) -> list[Any]:
    env, sink = local_environment(), CollectSink[Any]()
    env.from_source(FilesSource(folder, avro_files(Order, **options))).to_sink(sink)
    env.execute()
    return sink.results


def test_each_file_has_its_own_schema(tmp_path: Path) -> None:
    older = record("Order", ("customer", "int"), ("cents", "long"))
    for name, schema in (("a", older), ("b", ORDER)):
        with (tmp_path / name).open("wb") as file:
            fastavro.writer(file, schema, [{"customer": n, "cents": 1} for n in range(5000)], codec="deflate")
    assert read_files(tmp_path) == [Order(n, Cents(1)) for _ in range(2) for n in range(5000)]
    wide = record("Order", ("customer", "long"), ("cents", "long"), ("note", ["string", "null"], "none"))
    assert read_files(tmp_path, schema=wide)[0] == Order(0, Cents(1), "none")


def test_damaged_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.avro"
    with file.open("wb") as opened:
        fastavro.writer(opened, ORDER, [{"customer": n, "cents": 1} for n in range(9000)], sync_interval=2000)
    file.write_bytes(file.read_bytes()[:-300])
    with pytest.raises(UserFunctionError, match=r"a.avro cannot be read from this record on: EOFError: "):
        read_files(tmp_path)
    file.write_bytes(b"Order(1, 2)")
    with pytest.raises(UserFunctionError, match=r"a.avro cannot be read: ValueError: "):
        read_files(tmp_path)
