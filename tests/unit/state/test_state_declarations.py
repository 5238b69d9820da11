"""State declarations: their contents and their errors."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol, TypedDict, TypeVar

import pytest

from dsv2.errors import ContractError, StateDeclarationError
from dsv2.state import (
    AggregateFunction,
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    ReducingStateDeclaration,
    StateDeclarations,
    StateTtl,
    TtlUpdate,
    ValueStateDeclaration,
    aggregate_of,
)
from dsv2.state.types import classes_in, fits
from tests.durations import ms

TTL = StateTtl(ms(1000))
MEAN: AggregateFunction[int, tuple[int, int], float] = aggregate_of(
    lambda: (0, 0), lambda value, acc: (acc[0] + value, acc[1] + 1), lambda acc: acc[0] / acc[1]
)
T = TypeVar("T")


def smaller(one: int, other: int) -> int:
    return min(one, other)


@pytest.mark.parametrize(
    ("short", "plain"),
    [
        (StateDeclarations.value_state("s", int), ValueStateDeclaration("s", int)),
        (StateDeclarations.value_state("s", int, 7, ttl=TTL), ValueStateDeclaration("s", int, 7, ttl=TTL)),
        (StateDeclarations.list_state("s", list[int]), ListStateDeclaration("s", list[int])),
        (StateDeclarations.list_state_builder("s", str, ttl=TTL).build(), ListStateDeclaration("s", str, ttl=TTL)),
        (
            StateDeclarations.list_state_builder("s", str).redistribute_by(RedistributionStrategy.UNION).build(),
            ListStateDeclaration("s", str, RedistributionMode.REDISTRIBUTABLE, RedistributionStrategy.UNION),
        ),
        (
            StateDeclarations.list_state_builder("s", str)
            .redistribute_with_mode(RedistributionMode.REDISTRIBUTABLE)
            .build(),
            ListStateDeclaration("s", str, RedistributionMode.REDISTRIBUTABLE, RedistributionStrategy.SPLIT),
        ),
        (
            StateDeclarations.list_state_builder("s", str).redistribute_with_mode(RedistributionMode.IDENTICAL).build(),
            ListStateDeclaration("s", str, RedistributionMode.IDENTICAL),
        ),
        (StateDeclarations.map_state("s", str, int, ttl=TTL), MapStateDeclaration("s", str, int, ttl=TTL)),
        (StateDeclarations.map_state_builder("s", str, int).build(), MapStateDeclaration("s", str, int)),
        (
            StateDeclarations.map_state_builder("s", str, int).build_broadcast(),
            BroadcastStateDeclaration("s", str, int),
        ),
        (
            StateDeclarations.reducing_state("s", int, smaller, ttl=TTL),
            ReducingStateDeclaration("s", int, smaller, ttl=TTL),
        ),
        (
            StateDeclarations.aggregating_state("s", tuple[int, int], MEAN),
            AggregatingStateDeclaration("s", tuple[int, int], MEAN),
        ),
    ],
)
def test_short_form_creates_the_dataclasses(short: Any, plain: Any) -> None:
    assert short == plain
    assert hash(short) == hash(plain)


@pytest.mark.parametrize(
    ("declaration", "mode"),
    [
        (ValueStateDeclaration("s", int), RedistributionMode.NONE),
        (ListStateDeclaration("s", int), RedistributionMode.NONE),
        (ListStateDeclaration("s", int, RedistributionMode.REDISTRIBUTABLE), RedistributionMode.REDISTRIBUTABLE),
        (MapStateDeclaration("s", int, int), RedistributionMode.NONE),
        (BroadcastStateDeclaration("s", int, int), RedistributionMode.IDENTICAL),
        (ReducingStateDeclaration("s", int, smaller), RedistributionMode.NONE),
        (AggregatingStateDeclaration("s", tuple[int, int], MEAN), RedistributionMode.NONE),
    ],
)
def test_redistribution_mode(declaration: Any, mode: RedistributionMode) -> None:
    assert declaration.redistribution_mode is mode


def test_declaration_is_immutable() -> None:
    declaration = ValueStateDeclaration("s", int)
    with pytest.raises(FrozenInstanceError):
        declaration.name = "t"  # type: ignore[misc]


def test_builder_does_not_change_built_declarations() -> None:
    builder = StateDeclarations.list_state_builder("s", int)
    builder.redistribute_by(RedistributionStrategy.UNION)
    assert builder.build() == ListStateDeclaration("s", int)


def test_unhashable_default_is_accepted() -> None:
    assert hash(ValueStateDeclaration("s", list[int], [1])) == hash(ValueStateDeclaration("s", list[int], [1]))


SPLIT = ListStateDeclaration("s", int, RedistributionMode.REDISTRIBUTABLE, RedistributionStrategy.SPLIT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ValueStateDeclaration("s", int), ValueStateDeclaration("t", int)),
        (ValueStateDeclaration("s", int), ValueStateDeclaration("s", str)),
        (ValueStateDeclaration("s", int), ValueStateDeclaration("s", int, 0)),
        (ValueStateDeclaration("s", int), ValueStateDeclaration("s", int, ttl=TTL)),
        (ListStateDeclaration("s", int), SPLIT),
        (SPLIT, ListStateDeclaration("s", int, SPLIT.mode, RedistributionStrategy.UNION)),
        (MapStateDeclaration("s", int, int), BroadcastStateDeclaration("s", int, int)),
        (MapStateDeclaration("s", int, int), MapStateDeclaration("s", int, str)),
    ],
)
def test_different_declarations(one: Any, other: Any) -> None:
    assert one != other
    assert not one.matches(other)
    assert one.matches(pickle.loads(pickle.dumps(one)))  # noqa: S301 - our own bytes


def test_functions_are_compared_within_a_plan_only() -> None:
    one = ReducingStateDeclaration("s", int, lambda a, b: a + b)
    other = ReducingStateDeclaration("s", int, lambda a, b: a + b)
    assert one != other
    assert one.matches(other)
    aggregating = AggregatingStateDeclaration("s", Any, MEAN)
    assert aggregating.matches(AggregatingStateDeclaration("s", Any, aggregate_of(int, max, str)))


@pytest.mark.parametrize(
    ("duration", "milliseconds"), [(timedelta(milliseconds=1), 1), (timedelta(hours=1), 3_600_000)]
)
def test_time_to_live_in_milliseconds(duration: timedelta, milliseconds: int) -> None:
    assert StateTtl(duration).duration_ms == milliseconds


# Invalid declarations and their messages.
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: ValueStateDeclaration("", int), "The name of a state must be a non-empty string, not ''."),
    (lambda: ValueStateDeclaration(7, int), "The name of a state must be a non-empty string, not 7."),  # type: ignore[call-overload]
    (lambda: ValueStateDeclaration("s", "int"), "ValueState 's': 'int' is not a type. Give the class itself, not its"),
    (lambda: MapStateDeclaration("s", int, 7), "MapState 's': 7 is not a type. Give a class, or a type such as"),  # type: ignore[arg-type]
    (lambda: ListStateDeclaration("s", list["Order"]), "'Order' is not a type."),
    (lambda: ListStateDeclaration("s", dict[str, T]), "~T is not a type."),  # type: ignore[valid-type]
    (lambda: ValueStateDeclaration("s", int, "x"), "ValueState 's': the default 'x' is not of type <class 'int'>."),
    (lambda: ValueStateDeclaration("s", list[int], ()), "the default () is not of type list[int]."),
    (lambda: ValueStateDeclaration("s", int | str, 1.5), "the default 1.5 is not of type int | str."),
    (lambda: ValueStateDeclaration("s", int, ttl=1000), "ValueState 's': ttl must be a StateTtl, not 1000."),  # type: ignore[call-overload]
    (lambda: ListStateDeclaration("s", int, "SPLIT"), "ListState 's': mode must be one of 'none', "),  # type: ignore[arg-type]
    (
        lambda: ListStateDeclaration("s", int, RedistributionMode.NONE, "SPLIT"),  # type: ignore[arg-type]
        "ListState 's': strategy must be one of 'split', 'union', or a member of RedistributionStrategy, not 'SPLIT'.",
    ),
    (
        lambda: ListStateDeclaration("s", int, RedistributionMode.REDISTRIBUTABLE, ttl=TTL),
        "ListState 's': ttl requires keyed state (mode NONE), not mode REDISTRIBUTABLE.",
    ),
    (
        lambda: StateDeclarations.list_state_builder("s", int, ttl=TTL).redistribute_with_mode(
            RedistributionMode.IDENTICAL
        ),
        "ttl requires keyed state (mode NONE), not mode IDENTICAL.",
    ),
    (lambda: ReducingStateDeclaration("s", int, 7), "ReducingState 's': reduce must be a callable (value, value)"),  # type: ignore[arg-type]
    (lambda: AggregatingStateDeclaration("s", int, max), "AggregatingState 's': function must be an Aggregate"),  # type: ignore[arg-type]
    (lambda: StateTtl(ms(0)), "duration must be at least 1 ms, not 0 ms."),
    (lambda: StateTtl(60_000), "duration must be a datetime.timedelta, such as timedelta(seconds=5), not 60000."),  # type: ignore[arg-type]
    (lambda: StateTtl(timedelta(microseconds=999)), "duration must be a whole number of milliseconds, not 0.999 ms."),
    (lambda: StateTtl(ms(1), "write"), "update must be one of 'on-create-and-write', 'on-read-and-write', or a"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("declare", "said"), REFUSED)
def test_invalid_declaration_is_refused(declare: Callable[[], Any], said: str) -> None:
    with pytest.raises(StateDeclarationError) as refused:
        declare()
    assert said in str(refused.value)


def test_aggregate_of_functions() -> None:
    accumulator = MEAN.create_accumulator()
    for value in (1, 2, 6):
        accumulator = MEAN.add(value, accumulator)
    assert MEAN.get_result(accumulator) == 3
    with pytest.raises(ContractError, match=r"pass merge=\.\.\. to aggregate_of"):
        MEAN.merge(accumulator, accumulator)
    assert aggregate_of(int, max, str, merge=max).merge(2, 3) == 3


# Inspection of types.


@dataclass(frozen=True, slots=True)
class Item:
    event: threading.Event


class Order(NamedTuple):
    items: list[Item]
    next: Order | None


@dataclass
class Reducing:
    event: threading.Event

    def __reduce__(self) -> Any:
        return Reducing, ()


@dataclass
class Unresolvable:
    there: nowhere.Nothing  # type: ignore[name-defined]  # noqa: F821


class Options(TypedDict):
    order: Order


class Shape(Protocol):
    sides: int


OrderId = NewType("OrderId", str)


@pytest.mark.parametrize(
    ("form", "classes"),
    [
        (int, {int}), (None, set()), (Any, set()), (int | None, {int, type(None)}),
        (dict[str, list[tuple[Item, ...]]], {dict, str, list, tuple, Item, threading.Event}),
        (Order, {Order, list, Item, threading.Event, type(None)}),
        (Options, {dict, Order, list, Item, threading.Event, type(None)}),
        (Reducing, {Reducing}), (Unresolvable, {Unresolvable}), (OrderId, {str}), (Literal["a", 1], {str, int}),
        (Annotated[int, "percent"], {int}), (Sequence[bytes], {Sequence, bytes}), (tuple[()], {tuple}),
    ],
)  # fmt: skip
def test_classes_of_a_type(form: object, classes: set[type]) -> None:
    assert classes_in(form) == classes


@pytest.mark.parametrize(
    ("value", "form", "answer"),
    [
        (1, int, True), (1, Annotated[int, "percent"], True), ("1", Annotated[int, "percent"], False),
        (True, int, True), ("1", int, False), (1, float, True), ("1", float, False), ([], list[int], True),
        ([], Sequence[int], True), ((), list[int], False), ("a", Literal["a"], True), ("b", Literal["a"], False),
        (1, int | None, True), ("1", int | None, False), (None, None, True), ({}, Options, True), (1, Shape, True),
        (1, OrderId, True), (1, Any, True),
    ],
)  # fmt: skip
def test_whether_a_value_may_be_of_a_type(value: object, form: object, answer: bool) -> None:
    assert fits(value, form) is answer


def test_ttl_updates_have_flinks_names() -> None:
    assert [update.name for update in TtlUpdate] == ["ON_CREATE_AND_WRITE", "ON_READ_AND_WRITE"]
