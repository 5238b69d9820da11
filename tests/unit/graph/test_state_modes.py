"""State declarations by kind of stream: the complete table, and the errors."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, TypeAlias

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.errors import IllegalRedistributionModeError, PlanError, SerializationError, StateDeclarationError
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.state import (
    BroadcastStateDeclaration,
    ListStateDeclaration,
    RedistributionMode,
    StateDeclarations,
    ValueStateDeclaration,
)

Build: TypeAlias = Callable[[Any, Any], Any]

NONE, REDISTRIBUTABLE, IDENTICAL = RedistributionMode
VALUE = ValueStateDeclaration("s", int)
BROADCAST = BroadcastStateDeclaration("s", int, int)

# The call, and the modes that it refuses. (Flink has the same, but a global stream accepts NONE and fails later.)
TABLE: dict[str, tuple[Build, set[RedistributionMode]]] = {
    "non-keyed": (lambda s, states: s.non_keyed.process(using(s.one, states)), {NONE, IDENTICAL}),
    "non-keyed, two outputs": (lambda s, states: s.non_keyed.process(using(s.two_out, states)), {NONE, IDENTICAL}),
    "non-keyed × non-keyed": (
        lambda s, states: s.non_keyed.connect_and_process(s.other_non_keyed, using(s.two_in, states)),
        {NONE, IDENTICAL},
    ),
    "non-keyed × broadcast": (
        lambda s, states: s.non_keyed.connect_and_process(s.broadcast, using(s.with_side, states)),
        {NONE},
    ),
    "broadcast × non-keyed": (
        lambda s, states: s.broadcast.connect_and_process(s.non_keyed, using(s.with_side, states)),
        {NONE},
    ),
    "keyed": (lambda s, states: s.keyed.process(using(s.one, states)), {IDENTICAL}),
    "keyed, key-preserving": (lambda s, states: s.keyed.process(using(s.one, states), str), {IDENTICAL}),
    "keyed, two outputs": (lambda s, states: s.keyed.process(using(s.two_out, states)), {IDENTICAL}),
    "keyed, two outputs, key-preserving": (
        lambda s, states: s.keyed.process(using(s.two_out, states), first_key_selector=str, second_key_selector=str),
        {IDENTICAL},
    ),
    "keyed × keyed": (
        lambda s, states: s.keyed.connect_and_process(s.other_keyed, using(s.two_in, states)),
        {IDENTICAL},
    ),
    "keyed × keyed, key-preserving": (
        lambda s, states: s.keyed.connect_and_process(s.other_keyed, using(s.two_in, states), str),
        {IDENTICAL},
    ),
    "keyed × broadcast": (
        lambda s, states: s.keyed.connect_and_process(s.broadcast, using(s.with_side, states)),
        set(),
    ),
    "broadcast × keyed": (
        lambda s, states: s.broadcast.connect_and_process(s.keyed, using(s.with_side, states), str),
        set(),
    ),
    "global": (lambda s, states: s.global_.process(using(s.one, states)), {NONE, IDENTICAL}),
    "global, two outputs": (lambda s, states: s.global_.process(using(s.two_out, states)), {NONE, IDENTICAL}),
    "global × global": (
        lambda s, states: s.global_.connect_and_process(s.other_global, using(s.two_in, states)),
        {NONE, IDENTICAL},
    ),
}


def using(function: Any, states: Any) -> Any:
    """``function`` with these states."""
    function.uses_states = lambda: states
    return function


def location_of(build: Build) -> str:
    return f"{__file__}:{build.__code__.co_firstlineno}"


@pytest.mark.parametrize("mode", RedistributionMode)
@pytest.mark.parametrize("call", TABLE)
def test_table_of_modes(env: ExecutionEnvironment, s: Any, call: str, mode: RedistributionMode) -> None:
    build, forbidden = TABLE[call]
    build(s, [ListStateDeclaration("s", int, mode)])
    if mode not in forbidden:
        assert env.build_plan()
        return
    with pytest.raises(IllegalRedistributionModeError) as refused:
        env.build_plan()
    assert f" at {location_of(build)}: ListState 's' cannot be used here: " in str(refused.value)
    assert f"mode {mode.name} " in str(refused.value)


@pytest.mark.parametrize(
    ("declaration", "mode"),
    [(VALUE, NONE), (StateDeclarations.map_state("s", int, int), NONE), (BROADCAST, IDENTICAL)],
)
@pytest.mark.parametrize("call", TABLE)
def test_other_kinds_follow_their_mode(
    env: ExecutionEnvironment, s: Any, call: str, declaration: Any, mode: RedistributionMode
) -> None:
    build, forbidden = TABLE[call]
    build(s, [declaration])
    with pytest.raises(IllegalRedistributionModeError) if mode in forbidden else nullcontext():
        env.build_plan()


def test_error_says_how_to_fix_it(env: ExecutionEnvironment, s: Any) -> None:
    place = location() + 1
    s.global_.process(using(s.one, [VALUE])).with_uid("bad")
    with pytest.raises(IllegalRedistributionModeError) as refused:
        env.build_plan()
    assert str(refused.value) == (
        f"Global Process (uid 'bad') at {__file__}:{place}: ValueState 's' cannot be used here: state of mode "
        f"NONE belongs to a key, and this stream is not keyed. Call key_by first, or declare a list with "
        f"redistribute_by(...)."
    )


def location() -> int:
    """The line of the call."""
    return sys._getframe(1).f_lineno


def test_constant_key_allows_keyed_state(env: ExecutionEnvironment, s: Any) -> None:
    """As for windows on global streams."""
    s.one.dsv2_partition_by_constant = True
    s.global_.process(using(s.one, [VALUE]))
    assert env.build_plan()


def test_equal_declarations_are_one_state(env: ExecutionEnvironment, s: Any) -> None:
    s.keyed.process(using(s.one, [VALUE, ValueStateDeclaration("s", int)]))
    assert env.build_plan()


def test_two_functions_may_use_the_same_state_name(env: ExecutionEnvironment, s: Any) -> None:
    s.keyed.process(using(s.one, [VALUE]))
    s.keyed.process(using(s.two_out, [StateDeclarations.map_state("s", str, int)]))
    assert env.build_plan()


# Return values of uses_states, and the errors.
REFUSED: list[tuple[Any, str]] = [
    (None, "uses_states returned None, not a collection of declarations. Return a list or a tuple."),
    (
        VALUE,
        "uses_states returned ValueStateDeclaration(name='s', version=1, ttl=None, value_type=<class 'int'>, "
        "default=None), not",
    ),
    (["s"], "uses_states returned 's', which is not a state declaration. Create one with StateDeclarations."),
    ([ValueStateDeclaration], "declaration.ValueStateDeclaration'>, which is not a state declaration. Create one with"),
    ([StateDeclarations.list_state_builder("s", int)], "which is not a state declaration. Call its build()."),
    ([StateDeclarations.map_state_builder("s", int, int)], "which is not a state declaration. Call its build()."),
    ([VALUE, StateDeclarations.value_state("s", int, 0)], "state 's' has two different declarations:\n  ValueState"),
    (
        [VALUE, StateDeclarations.list_state("s", int)],
        "\nThe name of a state is unique in a function: rename one of them.",
    ),
    (
        [StateDeclarations.reducing_state("s", int, lambda a, b: a + b) for _ in range(2)],
        "state 's' has two different declarations:\n  ReducingState",
    ),
]


@pytest.mark.parametrize(("returned", "said"), REFUSED)
def test_invalid_uses_states_is_refused(env: ExecutionEnvironment, s: Any, returned: Any, said: str) -> None:
    place = location() + 1
    s.keyed.process(using(s.one, returned)).with_uid("bad")
    with pytest.raises(StateDeclarationError) as refused:
        env.build_plan()
    assert str(refused.value).startswith(f"KeyedProcess (uid 'bad') at {__file__}:{place}: ")
    assert said in str(refused.value)


class Custom:
    def __init__(self, event: threading.Event) -> None:
        self.event = event


@pytest.mark.parametrize("form", [threading.Event, list[threading.Event], dict[str, threading.Event | None]])
def test_unserializable_state_type_is_refused_by_the_plan(env: ExecutionEnvironment, s: Any, form: Any) -> None:
    place = location() + 1
    s.keyed.process(using(s.one, [ValueStateDeclaration("s", form)])).with_uid("bad")
    with pytest.raises(SerializationError) as refused:
        TypeRegistry.of(env.build_plan())
    assert str(refused.value) == (
        f"ValueState 's' of KeyedProcess (uid 'bad'), defined at {__file__}:{place}, cannot be checkpointed. "
        f"threading.Event is not a data class. Store plain values instead, or register how it is converted to plain "
        f"values: env.register_type(Event, take_apart=..., build=...)."
    )
    assert isinstance(refused.value, PlanError)


def test_classes_of_declared_types_may_be_read_back(env: ExecutionEnvironment, s: Any) -> None:
    class Local:
        pass

    s.keyed.process(using(s.one, [StateDeclarations.map_state("s", int, list[Local | Custom | None])]))
    registry = TypeRegistry.of(env.build_plan())
    assert registry.find(Local.__module__, Local.__qualname__) is Local
    assert registry.find(Custom.__module__, Custom.__qualname__) is Custom
