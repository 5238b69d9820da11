"""Values that are decoded and encoded without their classes, and then read with them."""

from __future__ import annotations

import copy
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from functools import cached_property
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.checkpoint.column_types import StructColumn, column_type_of_value
from dsv2.errors import CorruptDataError, SerializationError
from dsv2.graph import RegisteredType
from dsv2.runtime.serde import nodes
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.placeholders import StandIns
from dsv2.runtime.serde.type_registry import TypeRegistry


class Point(NamedTuple):
    x: Any
    y: Any = 0


@dataclass(frozen=True)
class Frozen:
    name: Any

    @cached_property
    def length(self) -> int:
        return len(self.name)


@dataclass(slots=True)
class Slotted:
    inside: Any


@dataclass
class Node:
    label: Any = None
    next: Any = None
    others: list[Any] = field(default_factory=list)


class Plain:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and vars(self) == vars(other)

    def __hash__(self) -> int:
        return 1


class Colour(Enum):
    RED = 1
    GREEN = "g"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Unit(StrEnum):
    METRE = "m"


class Access(Flag):
    READ = 1
    WRITE = 2


class Names(list[Any]):
    pass


class Table(dict[Any, Any]):
    pass


class Members(set[Any]):
    pass


class Id(int):
    pass


class Label(str):
    pass


class Pair(tuple[Any, ...]):
    pass


class Sealed:
    """Converted by functions that the job registers."""

    def __init__(self, secret: Any) -> None:
        self.secret = secret

    def __eq__(self, other: object) -> bool:
        return type(other) is Sealed and self.secret == other.secret

    def __hash__(self) -> int:
        return hash(self.secret)


_CLASSES = (Point, Frozen, Slotted, Node, Plain, Colour, Level, Unit, Access, Names, Table, Members, Id, Label, Pair)
_REAL = Codec(TypeRegistry(_CLASSES, (), [RegisteredType(Sealed, lambda value: value.secret, Sealed)]))
_STAND_INS = Codec(StandIns())


def through_stand_ins(value: Any) -> Any:
    """Encode ``value``, decode and encode it with stand-ins, and decode the result with its classes."""
    held = _STAND_INS.loads(_REAL.dumps(value), "a value")
    return _REAL.loads(_STAND_INS.dumps(held), "a value")


def with_attribute(value: Any) -> Any:
    value.more = [1]
    return value


def measured(value: Frozen) -> Frozen:
    assert value.length >= 0  # caches it
    return value


@pytest.mark.parametrize(
    "value",
    [
        Point(1, (2, 3)),
        [Point(1), Point(2), Point("a", Point(3))],
        Frozen("a"),
        measured(Frozen("abc")),
        Slotted(Node("n", Slotted(1))),
        Plain(a=1, b=Plain()),
        [Colour.RED, Colour.GREEN, Level.HIGH, Unit.METRE, Access.READ | Access.WRITE],
        {Colour.RED: 1, Level.LOW: 2, Point(1): 3, Frozen("k"): 4, Id(5): 6, Label("l"): 7},
        {Point(1), Point(2), Frozen("m")},
        frozenset([Plain(a=1), Plain(a=2)]),
        Names([1, Table({Point(1): Names()}), Members([Id(1)])]),
        Pair((1, Label("x"))),
        Sealed("s"),
        [Sealed(Point(1)), {Sealed(2): 3}],
        [Point, Frozen, int, defaultdict(Node), defaultdict(list, {Id(1): [2]})],
        (datetime(2026, 1, 2, tzinfo=UTC), date(2026, 1, 2), Decimal("1.5"), deque([Point(1)], 3)),
        OrderedDict({Point(1): Counter([Point(2), Point(2)])}),
        1 << 80,
        "\ud800",
        None,
    ],
    ids=repr,
)
def test_value_is_the_same(value: Any) -> None:
    assert through_stand_ins(value) == value
    shared = [value, *([[]] * 2)]  # a shared list makes it a graph
    assert through_stand_ins(shared) == shared


def test_attributes_beside_the_content_are_kept() -> None:
    for value in (Names([1]), Table(a=1), Id(3), Label("x"), Node("n"), Plain()):
        back = through_stand_ins([with_attribute(value), *([[]] * 2)])[0]
        assert (type(back), back, back.more) == (type(value), value, [1])


def test_shared_objects_stay_shared() -> None:
    for value in (Node("n"), Slotted(1), Plain(a=1), Names([1]), Table(a=1), Members([1])):
        first, second, inside = through_stand_ins([value, value, Point(value)])
        assert first is second is inside.x
        assert first == value
        assert type(first) is type(value)


def test_values_may_contain_themselves() -> None:
    node = Node("n")
    node.next = Point(node)
    node.others = Names([node])
    node.others.append(node.others)
    back = through_stand_ins(node)
    assert back.next.x is back
    assert back.others[0] is back
    assert back.others[1] is back.others
    assert type(back.others) is Names
    assert type(back.next) is Point


def test_records_of_an_earlier_program_keep_their_fields() -> None:
    @dataclass
    class Old:
        name: str

    Old.__module__, Old.__qualname__ = Frozen.__module__, Frozen.__qualname__
    written = Codec(TypeRegistry([Old])).dumps([Old("a"), Old("b")])
    again = _STAND_INS.dumps(_STAND_INS.loads(written, "a value"))
    assert _REAL.loads(again, "a value") == [Frozen("a"), Frozen("b")]


def test_keys_have_column_types() -> None:
    key = _STAND_INS.loads(_REAL.dumps(Point(1, "a")), "a key")
    assert column_type_of_value(key) == StructColumn((("x", "int64"), ("y", "string")))


@pytest.mark.parametrize("name", ["os.system", "a:b"])
def test_invalid_names_are_refused(name: str) -> None:
    node = (nodes.RECORDS, name, ["not a name"], [(nodes.ATOMS, [1])])
    with pytest.raises(CorruptDataError):
        _STAND_INS.loads(nodes_as_bytes(node), "a value")


def nodes_as_bytes(node: Any) -> bytes:
    import msgspec

    return msgspec.msgpack.encode(node)


def test_fields_and_values_must_match_in_number() -> None:
    node = (nodes.RECORDS, "a:b", ["x"], [(nodes.ATOMS, [1]), (nodes.ATOMS, [2])])
    with pytest.raises(CorruptDataError, match="The fields of a:b and their values differ in number"):
        _STAND_INS.loads(nodes_as_bytes(node), "a value")


def test_content_is_shown() -> None:
    assert [str(_STAND_INS.loads(_REAL.dumps(value), "a value")) for value in (Colour.RED, Id(5))] == ["RED", "5"]


def test_copy_knows_no_classes() -> None:
    """Tasks get a copy."""
    types = StandIns()
    value = Codec(types).loads(_REAL.dumps(Point(1, "a")), "a value")
    with pytest.raises(SerializationError, match="is not a class that was read"):
        Codec(copy.copy(types)).dumps(value)


def test_other_classes_are_not_encoded() -> None:
    with pytest.raises(SerializationError, match="Point"):
        _STAND_INS.dumps(Point(1))


_atoms = st.none() | st.integers() | st.text(max_size=3) | st.sampled_from([*Colour, *Level, *Unit, *Access])
_keys = st.recursive(
    st.integers() | st.text(max_size=3) | st.sampled_from([*Colour, *Level]) | st.builds(Id) | st.builds(Label),
    lambda inner: st.builds(Point, inner, inner) | st.builds(Frozen, inner) | st.tuples(inner).map(Pair),
    max_leaves=4,
)
_values = st.recursive(
    _atoms | _keys,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(Names)
        | st.dictionaries(_keys, inner, max_size=4)
        | st.dictionaries(_keys, inner, max_size=4).map(Table)
        | st.sets(_keys, max_size=4).map(Members)
        | st.builds(Point, inner, inner)
        | st.builds(Slotted, inner)
        | st.builds(Node, inner, inner, st.lists(inner, max_size=2))
        | st.builds(Plain, a=inner)
        | st.builds(Sealed, inner)
        | inner.map(lambda shared: [shared, shared, Node(shared)])
    ),
    max_leaves=12,
)


@given(_values)
def test_any_value_is_the_same(value: Any) -> None:
    assert through_stand_ins(value) == value
