"""Changes of the classes of stored values: what is read after a restart, and what is refused before anything runs.

Each change is made to a class wherever it may occur: in a state, within its containers, in a field of the function, in
a record that the state holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, make_dataclass
from enum import Enum, Flag
from functools import partial
from typing import Any, Literal, NamedTuple, NewType, Optional, Union

import pytest
from typing_extensions import TypeAliasType

from dsv2 import ExecutionEnvironment
from dsv2.checkpoint.description import describe
from dsv2.checkpoint.differences import differences
from dsv2.checkpoint.stored_classes import unreadable_classes
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.sinks import CollectSink
from dsv2.state import StateDeclaration, StateDeclarations
from tests.support import Driver, reread


class Keep(OneInputStreamProcessFunction[Any, Any]):
    """Its state and its field hold values of one type."""

    def __init__(self, state: StateDeclaration) -> None:
        self.state = state
        self.held: Any = None

    def uses_states(self) -> tuple[StateDeclaration, ...]:
        return (self.state,)

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class Program:
    """Keeps values of ``form`` for keys. ``formerly``: for each registered class, its former names."""

    def __init__(self, form: Any, *formerly: tuple[type, Any], version: int = 1, migrate: Any = None) -> None:
        self.state = StateDeclarations.value_state("held", form, version=version, migrate=migrate)
        env = ExecutionEnvironment.get_instance("local")
        for kind, names in formerly:
            env.register_type(kind, formerly=names)
        self.function = Keep(self.state)
        keyed = env.from_collection(list[str](), "in").key_by(str)
        keyed.process(self.function).with_uid("keep").with_parallelism(1).to_sink(CollectSink()).with_uid("out")
        self.plan = env.build_plan("job")

    def driver(self) -> Driver:
        return Driver(self.plan, "keep")

    def write(self, value: Any, key: Any = "a") -> bytes:
        """The snapshot of a subtask that holds ``value``."""
        driver = self.driver().open()
        driver.subtask.head.visit(key, lambda ctx: ctx.state_manager.get_state(self.state).update(value))
        function_of(driver).held = value
        return driver.subtask.snapshot()

    def read(self, blob: bytes, key: Any = "a") -> tuple[Any, Any]:
        """The state and the field of a subtask that continues from ``blob``."""
        driver = self.driver()
        driver.subtask.restore(blob)
        stored = driver.subtask.head.visit(key, lambda ctx: ctx.state_manager.get_state(self.state).value())
        return stored, function_of(driver).held


def function_of(driver: Driver) -> Any:
    return driver.subtask.head._calls._function


def found(before: Program, now: Program) -> list[str]:
    old, new = (reread(describe(program.plan)) for program in (before, now))
    unknown = unreadable_classes([old], new, TypeRegistry.of(now.plan))
    return [difference.text.partition("): ")[2] for difference in [*differences(old, new), *unknown]]


def named(name: str, kind: Any) -> Any:
    """``kind`` as if it were defined as ``shop.NAME``."""
    kind.__module__, kind.__qualname__, kind.__name__ = "shop", name, name.rpartition(".")[2]
    return kind


def order(*fields: Any, name: str = "Order", **options: Any) -> Any:
    return named(name, make_dataclass("Order", fields, **options))


def colours(*names: str, name: str = "Colour") -> Any:
    return named(name, Enum("Colour", {name: number for number, name in enumerate(names)}))


class Pair(NamedTuple):
    x: int
    y: int


class ReversedPair(NamedTuple):
    y: int
    z: str = "new"
    x: int = 0


FORMER = "shop.Order"


class Shop:
    """Versions of classes. As attributes of this module, the job would also use the earlier ones."""

    OLD = order(("a", int), ("b", str))
    COLOURS = colours("RED", "BLUE")
    FINE_COLOURS = colours("GREEN", "BLUE", "RED")
    MOVED = order(("a", int), ("b", str), name="Bought")
    MOVED_COLOURS = colours("RED", "BLUE", name="Paint.Tone")
    WIDER = order(("a", float), ("b", str))
    OPTIONAL = order(("a", Optional[int]), ("b", Union[str, int]))  # noqa: UP007, UP045
    WITH_DEFAULTS = order(("a", int), ("b", str, ""), ("c", int, 5), ("d", list[int], field(default_factory=list)))
    SHORTER = order(("b", str))
    REORDERED = order(("b", str), ("a", int))
    FROZEN = order(("a", int), ("b", str), frozen=True, slots=True)
    OLD_PAIR = named("Pair", Pair)
    NEW_PAIR = named("Pair", ReversedPair)


# Before, now, a value before, the value as it is read, former names.
ALLOWED: dict[str, tuple[Any, Any, Any, Any, Any]] = {
    "fields with defaults": (Shop.OLD, Shop.WITH_DEFAULTS, Shop.OLD(1, "x"), Shop.WITH_DEFAULTS(1, "x", 5, []), None),
    "field lost": (Shop.OLD, Shop.SHORTER, Shop.OLD(1, "x"), Shop.SHORTER("x"), None),
    "fields reordered": (Shop.OLD, Shop.REORDERED, Shop.OLD(1, "x"), Shop.REORDERED("x", 1), None),
    "frozen with slots": (Shop.OLD, Shop.FROZEN, Shop.OLD(1, "x"), Shop.FROZEN(1, "x"), None),
    "int to float": (Shop.OLD, Shop.WIDER, Shop.OLD(1, "x"), Shop.WIDER(1, "x"), None),
    "T to T | None": (Shop.OLD, Shop.OPTIONAL, Shop.OLD(1, "x"), Shop.OPTIONAL(1, "x"), None),
    "named tuple": (Shop.OLD_PAIR, Shop.NEW_PAIR, Pair(1, 2), ReversedPair(2, "new", 1), None),
    "members": (Shop.COLOURS, Shop.FINE_COLOURS, Shop.COLOURS.RED, Shop.FINE_COLOURS.RED, None),
    "renamed": (Shop.OLD, Shop.MOVED, Shop.OLD(1, "x"), Shop.MOVED(1, "x"), FORMER),
    "renamed again": (Shop.OLD, Shop.MOVED, Shop.OLD(1, "x"), Shop.MOVED(1, "x"), ["shop.Purchase", FORMER]),
    "enumeration moved": (Shop.COLOURS, Shop.MOVED_COLOURS, Shop.COLOURS.BLUE, Shop.MOVED_COLOURS.BLUE, "shop.Colour"),
}  # fmt: skip


@pytest.fixture(params=["itself", "list", "dict", "tuple", "optional", "record"])
def nested(request: pytest.FixtureRequest) -> Callable[[Any], tuple[Any, Callable[[Any], Any]]]:
    """A type that contains a class, and a function that makes a value of that type from one of the class."""

    def of(kind: Any) -> tuple[Any, Callable[[Any], Any]]:
        outer = order(("inner", list[kind]), name="Outer")
        return {
            "itself": (kind, lambda value: value),
            "list": (list[kind], lambda value: [value, value]),
            "dict": (dict[str, list[kind]], lambda value: {"k": [value]}),
            "tuple": (tuple[int, kind], lambda value: (1, value)),
            "optional": (Optional[tuple[kind, ...]], lambda value: (value, value)),  # noqa: UP045
            "record": (outer, lambda value: outer([value])),
        }[request.param]

    return of


@pytest.mark.parametrize("change", ALLOWED)
def test_allowed_change_is_read_everywhere(change: str, nested: Any) -> None:
    before, now, value, expected, former = ALLOWED[change]
    (old_form, old_value), (new_form, new_value) = nested(before), nested(now)
    old, new = Program(old_form), Program(new_form, *([(now, former)] if former else []))
    assert found(old, new) == []
    state, held = new.read(old.write(old_value(value)))
    assert state == held
    assert repr(state) == repr(new_value(expected))


# Before, now, and the message.
REFUSED: dict[str, tuple[Any, Any, str]] = {
    "field without default": (
        Shop.OLD, order(("a", int), ("c", int)), "shop.Order has a new field 'c' without a default. Give it one"
    ),
    "narrower": (Shop.WIDER, Shop.OLD, "field 'a' of shop.Order was float and is now int"),
    "no longer optional": (Shop.OPTIONAL, Shop.OLD, "field 'a' of shop.Order was NoneType | int and is now int"),
    "member lost": (Shop.COLOURS, colours("RED"), "shop.Colour no longer has the member 'BLUE'"),
    "class to enumeration": (
        Shop.OLD, colours("RED", name="Order"), "shop.Order was a class with fields and is now an enumeration"
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", REFUSED)
def test_refused_change_names_state_class_and_field(change: str, nested: Any) -> None:
    before, now, message = REFUSED[change]
    said = found(Program(nested(before)[0]), Program(nested(now)[0]))
    assert f"state 'held': {message}" in said


def test_renamed_class_is_compared() -> None:
    narrower = order(("a", str), ("b", str), name="Bought")
    assert found(Program(Shop.OLD), Program(narrower, (narrower, FORMER))) == [
        "state 'held': field 'a' of shop.Bought was int and is now str"
    ]


def test_class_that_was_not_registered_under_its_former_name_is_refused() -> None:
    kinds: list[Any] = [Shop.OLD, Shop.MOVED]
    of_type, unknown = found(*(Program(list[kind]) for kind in kinds))  # type: ignore[valid-type]
    assert of_type == "state 'held': its type was list[shop.Order] and is now list[shop.Bought]"
    assert unknown == "state 'held': it may hold values of shop.Order, a class that the program does not use"
    blob = Program(Shop.OLD).write(Shop.OLD(1, "x"))
    with pytest.raises(CorruptDataError, match=r"register its new class with formerly='shop\.Order'"):
        Program(Shop.MOVED).read(blob)


def test_nested_classes_are_renamed_with_their_outer_class() -> None:
    (box, item), (crate, part) = (
        (order(("items", list[inner]), name=name), inner)  # type: ignore[valid-type]
        for name in ("Box", "Crate")
        for inner in [order(("size", int), name=f"{name}.Item")]
    )
    old, new = Program(box), Program(crate, (crate, "shop.Box"))
    assert found(old, new) == []
    assert new.read(old.write(box([item(3)])))[0] == crate([part(3)])


def test_value_may_be_stored_under_any_former_name() -> None:
    second = order(("a", int), ("b", str), name="Purchase")
    last = Program(Shop.MOVED, (Shop.MOVED, [FORMER, "shop.Purchase"]))
    programs = Program(Shop.OLD), Program(second, (second, FORMER)), last
    for program, kind in zip(programs, (Shop.OLD, second, Shop.MOVED), strict=True):
        assert last.read(program.write(kind(1, "x")))[0] == Shop.MOVED(1, "x")


def store(state: StateDeclaration, value: Any, ctx: Any) -> None:
    ctx.state_manager.get_state(state).update(value)


def test_renamed_key_class_keeps_its_key_group() -> None:
    before = order(("a", int), ("b", str), frozen=True)
    now = order(("b", str), ("a", int), name="Bought", frozen=True)
    old, new = Program(before), Program(now, (now, FORMER))
    driver = old.driver().open()
    for number in range(300):
        key = before(number, str(number))
        driver.subtask.head.visit(key, partial(store, old.state, key))
    blob = driver.subtask.snapshot()
    for number in range(300):
        key = now(str(number), number)
        assert stable_hash(key) == stable_hash(before(number, str(number)))
        assert new.read(blob, key)[0] == key


class Paint(Flag):
    RED = 1
    BLUE = 2


def test_numbers_of_flags_must_stay() -> None:
    now = Flag("Paint", {"RED": 2, "BLUE": 1}, module=__name__)  # type: ignore[misc]
    first, _ = found(Program(Paint), Program(now))
    assert first == f"state 'held': the number of the flag 'RED' of {__name__}.Paint was 1 and is now 2"


Cents = NewType("Cents", int)
Numbers = TypeAliasType("Numbers", list[int])


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (int, float),
        (int, int | None),
        (list[int], list[float]),
        (dict[str, int], dict[str, int | None]),
        (tuple[int, ...], tuple[float, ...]),
        (list, list[int]),
        (int, Cents),
        (list[int], Numbers),
        (Literal["a"], Literal["b", "a"]),
        (Any, str),
        (str, object),
        (int | None, Union[None, int, str]),  # noqa: UP007
    ],
)
def test_type_of_a_state_may_be_widened(before: Any, now: Any) -> None:
    assert found(Program(before), Program(now)) == []


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (float, int, "float and is now int"),
        (int | None, int, "NoneType | int and is now int"),
        (list[int], list[str], "list[int] and is now list[str]"),
        (tuple[int, ...], tuple[int, int, int], "tuple[int, ...] and is now tuple[int, int, int]"),
    ],
)
def test_type_of_a_state_may_not_change_otherwise(before: Any, now: Any, said: str) -> None:
    assert found(Program(before), Program(now)) == [f"state 'held': its type was {said}"]


def keep(value: Any, version: int) -> Any:
    return value


def test_version_allows_another_type_if_there_is_a_converter() -> None:
    assert found(Program(int), Program(str, version=2, migrate=keep)) == []
    assert found(Program(int), Program(str, version=2)) == [
        "state 'held': its version was 1 and is now 2, but it has no converter"
    ]
    assert found(Program(str, version=2, migrate=keep), Program(bytes, version=2, migrate=keep)) == [
        "state 'held': its type was str and is now bytes"
    ]


def test_version_must_not_decrease() -> None:
    assert found(Program(int, version=3), Program(int, version=2, migrate=keep)) == [
        "state 'held': its version was 3 and is now 2"
    ]


def test_converter_gets_values_of_an_earlier_class() -> None:
    old = Program(Shop.OLD)
    assert found(old, Program(str, version=2, migrate=keep)) == [
        "state 'held': it may hold values of shop.Order, a class that the program does not use"
    ]
    new = Program(Shop.MOVED, (Shop.OLD, ()), version=2, migrate=lambda value, version: Shop.MOVED(value.a, value.b))
    assert found(old, new) == []
    assert new.read(old.write(Shop.OLD(1, "x")))[0] == Shop.MOVED(1, "x")


def test_class_that_only_a_converter_gets_is_compared() -> None:
    changed = order(("a", int), ("c", int))
    new = Program(str, (changed, ()), version=2, migrate=keep)
    assert found(Program(Shop.OLD), new) == [
        "state 'held': shop.Order has a new field 'c' without a default. Give it one"
    ]
    stored: Any = Shop.OLD
    assert found(Program(list[stored]), Program(object, (changed, ()))) == found(Program(stored), new)


@pytest.mark.parametrize(
    ("formerly", "said"),
    [
        ("Order", "give the module and the name"),
        ("shop.Bought", "the class still has this name"),
        ([7], "give the module and the name"),
    ],
)
def test_former_name_is_checked(formerly: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Program(Shop.MOVED, (Shop.MOVED, formerly))


def test_former_name_belongs_to_one_class() -> None:
    with pytest.raises(ConfigurationError, match="Bought was registered with this former name"):
        Program(Shop.MOVED, (Shop.MOVED, FORMER), (Shop.COLOURS, FORMER))


def test_former_name_must_not_be_in_use() -> None:
    program = Program(dict[Shop.OLD, Shop.MOVED], (Shop.MOVED, FORMER))  # type: ignore[valid-type]
    with pytest.raises(ConfigurationError, match=r"formerly='shop\.Order'\): the job also uses another class"):
        program.driver()
