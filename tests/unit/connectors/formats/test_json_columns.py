"""JSON from columns: the bytes of single records, or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import pytest

from dsv2.arrow import records_of
from dsv2.arrow.records import ArrowRecords
from dsv2.arrow.schema import rows_to_table
from dsv2.connectors.formats import FormatError, JsonEncoder
from dsv2.connectors.kafka import KafkaSink
from dsv2.connectors.kafka.encoder import MessageEncoder
from dsv2.model import RecordBatch


class Item(NamedTuple):
    text: str
    number: int | None = None
    value: float | None = None
    flag: bool | None = None
    day: date | None = None
    at: datetime | None = None
    data: bytes | None = None
    price: Decimal | None = None


@dataclass(frozen=True)
class Place:
    b: str
    a: int


class Listed(NamedTuple):
    numbers: list[int]


@dataclass
class Checked:
    a: int

    def __post_init__(self) -> None:
        self.a *= 2


AWKWARD = [
    Item(""),
    Item("\0\n\"'\\/\ufeff\u2028é\U0001f600", -(1 << 63), -0.0, False, date.min, datetime.min, b"", Decimal("-1.5")),
    Item("x" * 100_000, (1 << 63) - 1, 5e-324, True, date.max, datetime.max, b"\xff\0", Decimal("1e-18")),
    Item("None", 0, 1.7976931348623157e308, None, date(2024, 2, 29), datetime(2024, 3, 31, 2, 30, 0, 1)),
    Item("nan", 1, 0.1 + 0.2, at=datetime(2024, 1, 1)),
]


def columnar(rows: Sequence[Any]) -> ArrowRecords[Any]:
    kind = type(rows[0])
    return records_of(rows_to_table(rows, kind), kind)


@pytest.mark.parametrize("rows", [AWKWARD, [Place("x", 1), Place("\ufffd", -1)]])
def test_bytes_are_those_of_single_records(rows: list[Any]) -> None:
    encode, records = JsonEncoder(type(rows[0])), columnar(rows)
    assert encode.encode_columns(records) == list(map(encode, records))


@pytest.mark.parametrize(
    ("encoder", "rows"),
    [
        (JsonEncoder(Listed), [Listed([1])]),
        (JsonEncoder(Checked), [Checked(1)]),
        (JsonEncoder(Item), [Place("x", 1)]),
        (JsonEncoder(dict), [Place("x", 1)]),
        (JsonEncoder(Item), [Item("", value=None), Item("", value=float("nan"))]),
        (JsonEncoder(Item), [Item("", value=float("-inf"))]),
    ],
)
def test_others_are_encoded_one_by_one(encoder: JsonEncoder[Any], rows: list[Any]) -> None:
    assert encoder.encode_columns(columnar(rows)) is None


def test_float_that_is_not_finite_is_refused_as_before() -> None:
    records = columnar([Item("", value=float("nan"))])
    encoder = MessageEncoder("items", JsonEncoder(Item), None, None, None)
    assert encoder.takes_columns
    assert encoder.values(records) is None
    with pytest.raises(FormatError, match=r"Item\.value is nan"):
        encoder.message(records[0])


@pytest.mark.parametrize(
    "options",
    [
        {"key": lambda item: b"k"},
        {"headers": lambda item: ()},
        {"partition": lambda item: 0},
        {"value": lambda item: b"v"},
        {"topic": lambda item: "items", "marker_topic": "items"},
    ],
)
def test_only_values_are_encoded_from_columns(options: dict[str, Any]) -> None:
    assert KafkaSink("none", "items", JsonEncoder(Item)).dsv2_takes_columns
    given: dict[str, Any] = {"topic": "items", "value": JsonEncoder(Item), **options}
    assert not KafkaSink("none", **given).dsv2_takes_columns


def test_rows_are_not_columns() -> None:
    encoder = MessageEncoder[Any]("items", JsonEncoder(Item), None, None, None)
    assert encoder.values(RecordBatch(AWKWARD).records) is None
    assert encoder.values(columnar(AWKWARD)) is not None
