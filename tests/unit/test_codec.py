"""Serialized values: each is restored unchanged, or refused when it is written."""

from __future__ import annotations

import sys
import types
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from fractions import Fraction
from importlib.resources import files
from ipaddress import IPv4Network, IPv6Address
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID
from zlib import compressobj
from zoneinfo import ZoneInfo

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from dateutil.tz import tzoffset  # type: ignore[import-untyped]
from pyspark.sql import Row

from dsv2 import CorruptDataError, SerializationError
from dsv2.graph import RegisteredType
from dsv2.runtime.serde import decoder, encoder, nodes
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.watermark import WatermarkHandlingResult, new_builder

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tweet:
    topic: str
    time: int


@dataclass
class Open:
    anything: Any

    class Shade(Enum):
        DARK = 1


@dataclass(frozen=True)
class Checked:
    number: int
    doubled: int = field(init=False)

    def __post_init__(self) -> None:
        raise AssertionError("a constructor was called")


@dataclass
class Boxed(Generic[T]):
    value: T


@dataclass
class Counted:
    count: int = 0


class Pair(NamedTuple):
    left: Any
    right: Any = None


class PairAndMore(Pair):
    @property
    def both(self) -> Any:
        return self.left, self.right


class Colour(Enum):
    RED = ("red",)
    GREEN = ("green",)


class Access(Flag):
    READ = 1
    WRITE = 2


class Level(IntEnum):
    LOW = 1


class Kind(StrEnum):
    NEW = "new"


class Bag(dict[str, int]):
    """A subclass of a built-in type with an attribute."""

    def __init__(self, **counts: int) -> None:
        super().__init__(counts)
        self.label = "bag"


class Celsius(float):
    pass


class Numbers(list[int]):
    pass


class Plain:
    """Declares no fields."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]


class Slotted:
    __slots__ = ("a", "b")

    def __eq__(self, other: object) -> bool:
        return type(other) is Slotted and [getattr(o, "a", 0) for o in (self, other)] == [1, 1]

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Shadowed:
    """Has a property with the name of a field."""

    size: int


Shadowed.size = property(  # type: ignore[assignment]
    lambda self: vars(self)["size"] * 2, lambda self, size: vars(self).update(size=size)
)


class Property:
    """Its attribute is hidden by a property of the same name."""

    @property
    def size(self) -> int:
        return int(vars(self)["size"]) + 1


CLASSES = [
    *(
        Tweet,
        Open,
        Open.Shade,
        Checked,
        Boxed,
        Counted,
        Pair,
        PairAndMore,
        Colour,
        Access,
        Level,
        Kind,
        Bag,
        Celsius,
        Numbers,
    ),
    *(Plain, Slotted, Property, Shadowed),
]
OWN = Codec(TypeRegistry(CLASSES))
PLAIN = Codec(TypeRegistry())


def roundtrip(codec: Codec, value: Any) -> Any:
    return codec.loads(codec.dumps(value), "test")


def same(first: Any, second: Any) -> bool:
    """Whether both are equal and of the same type, in every part."""
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
    *(IPv4Network("10.0.0.0/8"), IPv6Address("::1%eth0"), array("u", "ab"), int, str, datetime),
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


# --- Changed classes -------------------------------------------------------------------------------------------------


def changed(value: Any, now: type) -> Any:
    """``value`` as read by a program whose class of that name is ``now``."""
    was = type(value)
    now.__module__, now.__qualname__ = was.__module__, was.__qualname__
    return Codec(TypeRegistry([now])).loads(Codec(TypeRegistry([was])).dumps(value), "State")


def test_fields_are_matched_by_name() -> None:
    class Swapped(NamedTuple):
        right: Any
        left: Any

    assert changed(Pair(1, 2), Swapped) == Swapped(right=2, left=1)


def test_kind_of_class_may_change() -> None:
    @dataclass(frozen=True, slots=True)
    class Tight:
        anything: Any

    @dataclass
    class Loose:
        time: int
        topic: str

    class Tuple(NamedTuple):
        anything: Any

    assert changed(Open([1]), Tight) == Tight([1])
    assert changed(Tweet("a", 1), Loose) == Loose(1, "a")
    assert changed(Open([1]), Tuple) == Tuple([1])


def test_fields_may_be_removed_or_added_with_a_default() -> None:
    @dataclass
    class Now:
        time: int
        tags: list[str] = field(default_factory=list)
        language: str = "en"

    assert changed(Tweet("a", 1), Now) == Now(1, [], "en")

    class Triple(NamedTuple):
        left: Any
        middle: Any = 7

    assert changed(Pair(1, 2), Triple) == Triple(1, 7)


def test_new_field_without_default_is_refused() -> None:
    @dataclass
    class Now:
        topic: str
        time: int
        language: str

    with pytest.raises(CorruptDataError) as refused:
        changed(Tweet("a", 1), Now)
    assert str(refused.value) == (
        f"State: {__name__}:Tweet was written with the fields topic, time, and now it also has 'language', which "
        f"has no default. Add a default."
    )


def test_enum_members_are_matched_by_name() -> None:
    class Renumbered(Enum):
        GREEN = 1
        RED = 2

    class Gone(Enum):
        GREEN = 1

    assert changed(Colour.RED, Renumbered) is Renumbered.RED
    with pytest.raises(CorruptDataError, match="Colour has no member 'RED'"):
        changed(Colour.RED, Gone)


# --- Refused values --------------------------------------------------------------------------------------------------


def test_local_class_keeps_its_identity() -> None:
    @dataclass
    class Local:
        inner: Any

    codec = Codec(TypeRegistry([Local]))
    again = roundtrip(codec, [Local(Local(1)), Local])
    assert again == [Local(Local(1)), Local]
    assert type(again[0]) is Local


def test_classes_of_main_are_found_under_another_main(monkeypatch: pytest.MonkeyPatch) -> None:
    here, elsewhere = types.ModuleType("__main__"), types.ModuleType("__main__")
    exec("class Mine:\n    def __init__(self, value):\n        self.value = value", vars(here))
    registry = TypeRegistry([here.Mine])
    monkeypatch.setitem(sys.modules, "__main__", here)
    data = Codec(registry).dumps([here.Mine(1)])
    monkeypatch.setitem(sys.modules, "__main__", elsewhere)
    [mine] = Codec(registry).loads(data, "test")
    assert type(mine) is here.Mine
    assert mine.value == 1


class PicklesItself:
    def __reduce__(self) -> Any:
        return PicklesItself, ()


class Finalized:
    def __del__(self) -> None: ...


class Unknown:
    pass


def with_attribute(value: Any) -> Any:
    value.note = "a"
    return value


class Failing:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise ValueError("my own reason")


REFUSED = Codec(TypeRegistry([PicklesItself, Finalized, Failing, *CLASSES]))
WAY_OUT = r"Store plain values instead, or register how it is converted to plain values: env\.register_type\("


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda: None, f"builtins.function is not a data class: builtins.function is written in C. {WAY_OUT}function"),
        ([sys], "builtins.module is not a data class"),
        (iter(()), "builtins.tuple_iterator is not a data class"),
        (PicklesItself(), rf"PicklesItself defines how it is pickled \(PicklesItself.__reduce__\).* {WAY_OUT}"),
        (Finalized(), rf"it has a finalizer, Finalized.__del__. {WAY_OUT}Finalized"),
        (ValueError("x"), "builtins.ValueError is not a data class"),
        (Failing(), "Failing is not a data class: it hides its attributes"),
        (
            defaultdict(Plain),
            "A defaultdict of .*Plain.* cannot be serialized. Use a built-in",
        ),
        (Unknown(), rf"The class {__name__}.Unknown is unknown to the job. Call env.register_type\(Unknown\)."),
        (Unknown, r"Call env.register_type\(Unknown\)."),
        (with_attribute(PairAndMore(1)), "PairAndMore has attributes that are not fields. Declare them as fields."),
        (compressobj(), "zlib.Compress is not a data class: (it has parts that are|zlib.Compress is) written in C"),
        (np.ndarray, "The class numpy.ndarray itself is not data."),
        (
            ZoneInfo.from_file(files("tzdata.zoneinfo").joinpath("UTC").open("rb")),
            r"A ZoneInfo without a key cannot be serialized. Use ZoneInfo\(key\).",
        ),
        (
            pd.Timestamp("2024-02-29", tz=tzoffset(None, 3600)),
            r"A timestamp in tzoffset\(None, 3600\) cannot be serialized. Use zoneinfo.ZoneInfo.",
        ),
        (np.array([object()]), "An array of object cannot be serialized. Use an array of numbers, times or strings."),
        (pd.DataFrame({"a": [1]}), "pandas.core.frame.DataFrame"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_unserializable_value_is_refused_with_a_remedy(value: Any, reason: str) -> None:
    for around in (value, [1, {"a": value}]):
        with pytest.raises(SerializationError, match=reason):
            REFUSED.dumps(around)


def test_deeply_nested_tuples_are_refused() -> None:
    deep: Any = ()
    for _ in range(1000):
        deep = (deep,)
    with pytest.raises(SerializationError, match="A value nests more than 64 containers, or a tuple contains itself"):
        OWN.dumps(deep)
    assert roundtrip(OWN, [deep_of(60)]) == [deep_of(60)]


def deep_of(depth: int) -> Any:
    deep: Any = 1
    for _ in range(depth):
        deep = (deep,)
    return deep


def test_class_with_the_same_name_is_refused() -> None:
    double: Any = dataclass(type("Tweet", (), {"__module__": Tweet.__module__, "__annotations__": {"topic": str}}))
    with pytest.raises(SerializationError, match="is not the class that the job uses under this name"):
        OWN.dumps(double("a"))


class Money:
    """Constructed in its own way."""

    def __init__(self, cents: int) -> None:
        self.cents = cents

    def __reduce__(self) -> Any:
        raise AssertionError("pickled")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Money) and other.cents == self.cents

    def __hash__(self) -> int:
        return hash(self.cents)


def test_registered_type() -> None:
    registered = RegisteredType(Money, lambda money: money.cents, Money)
    codec = Codec(TypeRegistry([Tweet], registered=[registered]))
    value = [Money(5), {Money(7): Money(9)}, Tweet("a", 1)]
    assert roundtrip(codec, value) == value
    with pytest.raises(CorruptDataError, match="Money"):
        OWN.loads(codec.dumps(value), "test")


def test_failure_of_a_registered_type_is_named() -> None:
    def take_apart(money: Money) -> int:
        raise ValueError("no cents")

    codec = Codec(TypeRegistry(registered=[RegisteredType(Money, take_apart, Money)]))
    with pytest.raises(SerializationError, match="A value cannot be serialized: no cents"):
        codec.dumps(Money(5))


def test_class_is_found_by_its_former_names() -> None:
    types = TypeRegistry([Tweet, Open, Open.Shade], registered=[RegisteredType(Open, None, None, ("old.shop.Open",))])
    assert types.class_named(f"{__name__}.Tweet") is Tweet
    assert types.class_named("old.shop.Open") is Open
    assert types.class_named("old.shop.Open.Shade") is Open.Shade
    assert types.class_named("old.shop.Open.Removed") is None
    assert types.class_named("old.shop.Tweet") is None


def test_numbers_are_little_endian_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the machine is not: then its own numbers are in the wrong order, and are swapped twice."""
    numbers = [*range(100, 200)]
    little = PLAIN.dumps(numbers)
    monkeypatch.setattr(encoder, "byteorder", "big")
    big = PLAIN.dumps(numbers)
    assert sorted(big) == sorted(little)
    assert big != little
    monkeypatch.setattr(decoder, "byteorder", "big")
    assert PLAIN.loads(big, "test") == numbers


def test_tags_of_node_kinds_are_unique() -> None:
    tags = [vars(nodes)[name] for name in nodes.__all__ if isinstance(vars(nodes).get(name), int)]
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
