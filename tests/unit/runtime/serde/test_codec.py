"""Serialized values: each is restored unchanged, or refused when it is written."""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from ipaddress import IPv4Network, IPv6Address
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import Row

from dsv2.errors import CorruptDataError
from dsv2.runtime.serde import nodes
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.watermark import WatermarkHandlingResult, new_builder
from tests.codec_classes import (
    OWN,
    PLAIN,
    Access,
    Bag,
    Boxed,
    Celsius,
    Checked,
    Colour,
    Counted,
    Kind,
    Level,
    Numbers,
    Open,
    Pair,
    PairAndMore,
    Plain,
    Property,
    Shadowed,
    Slotted,
    Tweet,
    roundtrip,
)


def same(first: Any, second: Any) -> bool:
    """Return whether both are equal and of the same type, in every part."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return len(first) == len(second) and all(map(same, first.items(), second.items()))
    if isinstance(first, list | tuple | deque):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second) or (first != first and second != second)


PLAIN_VALUES: list[Any] = [
    *(None, True, 1, 0, -1, 1 << 63, -(1 << 63), (1 << 64) - 1, 1 << 64, -(1 << 80), 2**5000, 1.5, -0.0, float("nan")),
    *(1j, "text", "", "é", "\ud800", "a\ud800é", b"bytes", b"", bytearray(b"array"), range(3), slice(1, None)),
    *((), (1, "a"), [], [1, [2]], {}, {"a": {1: None}}, set(), {1, 2}, frozenset({3}), frozenset()),
    *([1, 1.0, True, None, "1", b"1"], [1 << 70, "\ud800", 1, "a", None, 1.5], [(), (1,), (1, 2)], [[], [[]], [[[]]]]),
    *([1] * 100, [1.5] * 100, [1 << 40] * 100, [1 << 70] * 100, ["\ud800"] * 100, [True] * 100, [1, True] * 50),
    *(
        [{"a": 1, "b": 2}] * 3,
        [{"a": 1}, {"b": 2}],
        [{"a": 1, "b": 2}, {"b": 1, "a": 2}],
        [{1: 1}, {1.0: 1}, {True: 1}],
    ),
    *(tuple(range(200)), dict.fromkeys(range(200)), {"": 1, "a": 2}, {(1, (2,)): 3}, {frozenset({1}): 1}),
    *(date(2024, 2, 29), time(12, 30), time(1, tzinfo=UTC, fold=1), timedelta(days=-1, microseconds=1), timedelta.max),
    *(datetime(2024, 2, 29, 12), datetime.min, datetime.max, datetime(2024, 10, 27, 2, 30, fold=1)),
    *(datetime(2024, 2, 29, 12, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=timezone(timedelta(hours=2), "here"))),
    *(datetime(2024, 2, 29, 12, tzinfo=ZoneInfo("Europe/Paris")), ZoneInfo("UTC"), UTC, timezone(timedelta(1, -1))),
    *(Decimal("1.10"), Decimal("-0"), Decimal("NaN"), Decimal("sNaN12"), Decimal("1E+999999999"), Decimal("Infinity")),
    *(Fraction(1, 3), Fraction(-5), UUID(int=7), PurePosixPath("a/b"), PureWindowsPath("c:\\a"), array("d", [1.5])),
    *(IPv4Network("10.0.0.0/8"), IPv6Address("::1%eth0"), array("i", [1, 2]), int, str, datetime),
    *(Counter("abca"), Counter(), OrderedDict(b=1, a=2), deque([1, 2], 5), deque(), defaultdict(list, {"a": [1]})),
]


@pytest.mark.parametrize("value", PLAIN_VALUES, ids=lambda value: repr(value)[:40])
def test_plain_values_need_no_registration(value: Any) -> None:
    for around in (value, [value], {"a": value}, (value, [value]), Counter(a=value)):
        if isinstance(value, Decimal) and value.is_snan():
            assert str(roundtrip(PLAIN, value)) == str(value)
        else:
            assert same(roundtrip(PLAIN, around), around)


OWN_VALUES: list[Any] = [
    *(Tweet("a", 1), Open([Tweet("a", 1)]), Boxed(Boxed(1)), Pair(1, Pair(2, 3)), PairAndMore(1, [2])),
    *(
        Colour.RED,
        Open.Shade.DARK,
        Access(3),
        Access.READ,
        Level.LOW,
        Kind.NEW,
        Bag(a=1),
        Celsius(1.5),
        Numbers([1, 2]),
    ),
    *(Plain(), Plain(a=1, b=Plain(c=[2])), [Plain(a=1), Plain(b=2)], {Colour.RED: 1, Level.LOW: 2}, {Tweet("a", 1)}),
    *([Tweet("a", 1), None, Pair(1, 2), Tweet("b", 2)], {Pair(1, "a"): Open(None)}, [Tweet, Plain]),
]


@pytest.mark.parametrize("value", OWN_VALUES, ids=lambda value: repr(value)[:40])
def test_values_of_the_jobs_own_classes(value: Any) -> None:
    again = roundtrip(OWN, value)
    assert same(again, value)
    assert getattr(again, "__dict__", None) == getattr(value, "__dict__", None)


def test_constructors_are_not_called() -> None:
    value = object.__new__(Checked)
    object.__setattr__(value, "number", 1)
    object.__setattr__(value, "doubled", 2)
    assert roundtrip(OWN, value) == value


def test_extra_and_missing_attributes_are_kept() -> None:
    more, less, other = Open(1), Open(1), Open(1)
    more.extra = [2]  # type: ignore[attr-defined]
    del less.anything, other.anything
    other.extra = 4  # type: ignore[attr-defined]
    attributes = [{"anything": 1, "extra": [2]}, {}, {"extra": 4}, {"anything": 3}]
    assert [vars(value) for value in roundtrip(OWN, [more, less, other, Open(3)])] == attributes
    assert vars(roundtrip(OWN, other)) == {"extra": 4}


def test_slots_may_be_empty() -> None:
    value: Any = Slotted()
    value.a = 1
    again = roundtrip(OWN, value)
    assert again == value
    assert not hasattr(again, "b")
    tweet = object.__new__(Tweet)
    object.__setattr__(tweet, "topic", "a")
    again = roundtrip(OWN, tweet)
    assert again.topic == "a"
    assert not hasattr(again, "time")


def test_properties_are_bypassed() -> None:
    value = Property()
    vars(value)["size"] = 1
    assert roundtrip(OWN, value).size == 2
    stored = Shadowed(1)
    assert (stored.size, roundtrip(OWN, stored).size) == (2, 2)


@pytest.mark.parametrize(
    "value",
    [
        *(
            np.arange(6).reshape(2, 3),
            np.array([1.5, np.nan]),
            np.array(["a", "bc"]),
            np.array([], "M8[ns]"),
            np.array(7),
        ),
        *(np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(10)[::2], np.zeros((3, 0)), np.ones(3, ">i4")),
        *(np.float64(1.5), np.int8(-1), np.bool_(True), np.str_("a"), np.datetime64("2024-02-29T12", "ms")),
        *(pd.Timestamp("2024-02-29 12:00:00.000000001"), pd.Timestamp("2024-02-29", tz="Europe/Paris"), pd.NaT, pd.NA),
        *(
            pd.Timestamp(1, unit="s", tz=ZoneInfo("Europe/Paris")),
            pd.Timedelta(7),
            pd.Timestamp(1, unit="s").as_unit("s"),
        ),
        *(
            pa.table({"a": [1, None]}),
            pa.array(["a", None]),
            pa.chunked_array([[1], [2]]),
            pa.schema([("a", pa.int8())]),
        ),
        *(pa.record_batch({"a": [1]}), Row(a=1, b="c"), Row("a", "b")),
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:20]!r}",
)
def test_values_of_packages(value: Any) -> None:
    for again in (roundtrip(PLAIN, value), roundtrip(PLAIN, {"a": [value]})["a"][0]):
        assert type(again) is type(value)
        if isinstance(value, np.ndarray | np.generic):
            assert again.dtype == value.dtype
            np.testing.assert_array_equal(again, value)
        elif isinstance(value, pd.Timestamp):
            assert (again, str(again.tz), again.unit) == (value, str(value.tz), value.unit)
        elif value is pd.NaT or value is pd.NA:
            assert again is value
        else:
            assert again == value
        if isinstance(value, Row):
            assert repr(again) == repr(value)


def test_restored_arrays_are_writable() -> None:
    again = roundtrip(PLAIN, np.arange(3))
    again[0] = 7
    assert again.tolist() == [7, 1, 2]


def test_watermarks_and_declarations_need_no_registration() -> None:
    declaration = new_builder("newest").type_long().combine_function_max().build()
    value = [declaration, declaration.new_watermark(5), WatermarkHandlingResult.PEEK]
    assert roundtrip(PLAIN, value) == value


def test_defaultdict_keeps_its_factory() -> None:
    again = roundtrip(OWN, [defaultdict(list, {"a": [1]}), defaultdict(None), defaultdict(Counted)])
    assert again[0]["b"] == []
    assert [value.default_factory for value in again] == [list, None, Counted]


def test_time_zone_is_the_same_object() -> None:
    """Otherwise differences of two times in it would no longer be wall-clock differences."""
    zone = ZoneInfo("Europe/Paris")
    assert roundtrip(PLAIN, datetime(2024, 2, 29, tzinfo=zone)).tzinfo is zone


# --- Shared objects --------------------------------------------------------------------------------------------------


def test_shared_object_stays_shared() -> None:
    shared = Open([])
    first, second, third = roundtrip(OWN, [shared, {"again": shared}, Pair(shared.anything)])
    assert second["again"] is first
    assert third.left is first.anything


@pytest.mark.parametrize(
    "shared",
    [
        *([1], {"a": 1}, {1}, deque([1], 3), defaultdict(int, a=1), OrderedDict(a=1), Counter("a"), bytearray(b"a")),
        *(array("i", [1]), Plain(a=1), Open(1), Bag(a=1), Numbers([1]), np.arange(3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_mutable_objects_stay_shared(shared: Any) -> None:
    first, (second,), other = roundtrip(OWN, (shared, [shared], [type([]), 7]))
    assert first is second
    assert str(first) == str(shared) if not isinstance(shared, Plain) else first == shared
    assert type(first) is type(shared)
    assert other == [list, 7]


def test_values_that_contain_themselves() -> None:
    own: list[Any] = [1]
    own.append(own)
    again = roundtrip(PLAIN, own)
    assert again[1] is again
    parent = Plain(name="parent", children=[])
    vars(parent)["children"] += [Plain(parent=parent, number=number) for number in range(2)]
    again = roundtrip(OWN, parent)
    assert [child.parent is again for child in again.children] == [True, True]
    assert [child.number for child in again.children] == [0, 1]


def test_long_chains_of_objects() -> None:
    last = first = Plain(number=0)
    for number in range(1, 2000):
        following = Plain(number=number)
        vars(last)["next"] = following
        last = following
    again, numbers = roundtrip(OWN, first), []
    while True:
        numbers.append(again.number)
        if not hasattr(again, "next"):
            break
        again = again.next
    assert numbers == list(range(2000))


def test_values_of_a_column_are_independent() -> None:
    shared = [1]
    [[first, second]] = OWN.loads_columns(OWN.dumps_columns([[Pair(shared), Pair(shared)]]), "test")
    assert first == second
    assert first.left is not second.left


def test_sharing_within_one_value_is_kept() -> None:
    inner = [1]
    own: list[Any] = []
    own.append(own)
    [[first, second, third]] = OWN.loads_columns(OWN.dumps_columns([[Pair(inner, inner), Pair(inner), own]]), "test")
    assert first.left is first.right
    assert second.left is not first.left
    assert third[0] is third


def test_tags_of_node_kinds_are_unique() -> None:
    tags = [value for value in vars(nodes).values() if isinstance(value, int)]
    tags = [tag for tag in tags if tag not in (nodes.MANY, nodes.MAX_DEPTH, nodes.MAX_WIDTH)]
    assert sorted(tags) == sorted(set(tags))


@pytest.mark.parametrize("value", [None, True, -7, 2.5, "text", b"bytes", 1 << 80, "\ud800"])
def test_single_plain_value_is_encoded_like_a_column_of_one(value: Any) -> None:
    codec = Codec(TypeRegistry())
    (column,) = msgspec.msgpack.decode(codec.dumps_columns([[value]]))
    assert codec.dumps(value) == msgspec.msgpack.encode(column)
    assert codec.loads(codec.dumps(value), "a value") == value


@pytest.mark.parametrize("rest", [b"", b"\xa1\xff", b"\x01\x01", b"\x91\x01", b"\xd4\x01a"])
def test_damaged_plain_value_names_its_owner(rest: bytes) -> None:
    codec = Codec(TypeRegistry())
    with pytest.raises(CorruptDataError, match=r"^A value of count: "):
        codec.loads(codec.dumps(0)[:-1] + rest, "A value of count")
