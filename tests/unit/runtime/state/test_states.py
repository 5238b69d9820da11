"""States of functions in a running subtask: their scope, what is checkpointed, and error messages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dsv2.errors import SerializationError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.state import (
    ListStateDeclaration,
    RedistributionMode,
    RedistributionStrategy,
    StateDeclaration,
    StateDeclarations,
    ValueStateDeclaration,
    aggregate_of,
)
from tests.support import ENDED, Driver, broadcast_side, driven, local_environment, one_input


@dataclass
class Item:
    number: int


def add(value: int, accumulator: int) -> int:
    return accumulator + value


VALUE = StateDeclarations.value_state("value", int)
LIST = StateDeclarations.list_state("list", int)
MAP = StateDeclarations.map_state("map", int, int)
TOTAL = StateDeclarations.aggregating_state("total", int, aggregate_of(int, add, lambda total: total))
SHARED = StateDeclarations.list_state_builder("shared", int).redistribute_by(RedistributionStrategy.SPLIT).build()
RULES = StateDeclarations.map_state_builder("rules", int, int).build_broadcast()
COPIED = ListStateDeclaration("copied", int, RedistributionMode.IDENTICAL)


def keyed(*states: StateDeclaration, process: Callable[..., Any], **callbacks: Callable[..., Any]) -> Driver:
    """A function with ``states`` on a stream keyed by the record itself. It emits the result of ``process``."""

    def process_record(record: Any, output: Any, ctx: Any) -> None:
        output.collect(process(record, ctx.state_manager))

    function = one_input(uses_states=lambda: states, process_record=process_record, **callbacks)
    return driven(lambda stream: stream.key_by(lambda record: record).process(function).with_uid("f"))


def count(record: int, states: Any) -> int:
    value = states.get_state(VALUE)
    value.update((value.value() or 0) + 1)
    return int(value.value())


@pytest.mark.parametrize("restart", [False, True], ids=["", "restarting"])
def test_broadcast_map_is_the_same_for_all_keys(restart: bool) -> None:
    """The same holds for a list of mode IDENTICAL, which belongs to the key in Flink."""

    def on_record(record: Any, output: Any, ctx: Any) -> None:
        rules = ctx.state_manager.get_state(RULES)
        ctx.state_manager.get_state(COPIED).add(record)
        rules.put(record, rules.get(record, 0) + 1)
        output.collect((len(rules), ctx.state_manager.get_state(COPIED).get()))

    function = broadcast_side(uses_states=lambda: [RULES, COPIED], process_record_from_non_broadcast_input=on_record)
    driver = driven(
        lambda stream: stream.key_by(lambda record: record).connect_and_process(stream.broadcast(), function)
        .with_uid("f")
    )  # fmt: skip
    for record in (1, 2, 3, 4, 4):
        driver.send(record, channel=0)
        if restart:
            driver.restart()
    found = driver.sent_to("out")
    assert [size for size, _ in found] == [1, 2, 3, 4, 4]
    assert found[-1][1] == [1, 2, 3, 4, 4]


class Keeping(OneInputStreamProcessFunction[int, Any]):
    """Keeps handles in fields."""

    def __init__(self) -> None:
        self.declaration = StateDeclarations.value_state("made here", list[int], default=[])
        self.total: Any = None

    def uses_states(self) -> Any:
        return [self.declaration, TOTAL, SHARED]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if self.total is None:
            self.total = ctx.state_manager.get_state(TOTAL)
            self.others = {"shared": [ctx.state_manager.get_state(SHARED)]}
        values = ctx.state_manager.get_state(self.declaration)
        values.update([*values.value(), record])
        self.total.add(record)
        self.others["shared"][0].add(record)
        output.collect((values.value(), self.total.get(), self.others["shared"][0].get()))


def test_handle_in_a_field_survives_a_restart() -> None:
    driver = driven(lambda stream: stream.key_by(lambda record: record % 2).process(Keeping()).with_uid("f"))
    for record in (1, 2, 3, 4):
        driver.send(record)
        driver.restart()
    assert driver.sent_to("out") == [
        ([1], 1, [1]),
        ([2], 2, [1, 2]),
        ([1, 3], 4, [1, 2, 3]),
        ([2, 4], 6, [1, 2, 3, 4]),
    ]


def test_returned_collections_are_copies() -> None:
    def process(record: int, states: Any) -> Any:
        elements, entries = states.get_state(LIST), states.get_state(MAP)
        elements.get().append(0)
        elements.update(given)
        entries.put_all({1: 1})
        for key in entries:
            entries.remove(key)
        for _, value in entries.items():
            entries.put(value + 1, 0)
        given.append(0)
        return elements.get(), entries.items()

    given = [1]
    driver = keyed(LIST, MAP, process=process)
    driver.send(1)
    assert driver.sent_to("out") == [([1], [])]


def test_mutable_default_is_not_shared() -> None:
    default = StateDeclarations.value_state("items", list[Item], default=[Item(0)])

    def process(record: int, states: Any) -> int:
        items = states.get_state(default).value()
        items[0].number += 1
        items.append(Item(1))
        return len(items) + int(items[0].number)

    driver = keyed(default, process=process)
    driver.send(1, 1, 2)
    assert driver.sent_to("out") == [3, 3, 3]


# Mistakes.


def failure_of(driver: Driver, *sent: Any) -> UserFunctionError:
    with pytest.raises(UserFunctionError) as failed:
        driver.send(*sent)
    return failed.value


def test_undeclared_state_is_named_with_the_declared_ones() -> None:
    """In Flink it works on keyed streams, and raises a NullPointerException elsewhere."""
    failed = failure_of(keyed(LIST, MAP, process=count), 1)
    assert (failed.cause_type, failed.record, failed.key) == ("UndeclaredStateError", "1", "1")
    assert failed.cause_message == (
        "ValueState 'value' is not declared (declared: ListState 'list', MapState 'map'). Return its declaration from "
        "uses_states()."
    )


def test_get_state_optional_returns_declared_states_only() -> None:
    driver = keyed(LIST, process=lambda record, states: (states.get_state_optional(VALUE), record))
    driver.send(1)
    assert driver.sent_to("out") == [(None, 1)]
    driver = keyed(VALUE, process=lambda record, states: states.get_state_optional(VALUE).value())
    driver.send(1)
    assert driver.sent_to("out") == [None]


@pytest.mark.parametrize("ask", ["get_state", "get_state_optional"])
def test_different_declaration_of_the_same_name_is_refused(ask: str) -> None:
    driver = keyed(VALUE, process=lambda record, states: getattr(states, ask)(ValueStateDeclaration("value", str)))
    failed = failure_of(driver, 1)
    assert failed.cause_type == "UndeclaredStateError"
    assert failed.cause_message.startswith("uses_states() returns another declaration of 'value':\n  requested: Value")


def test_get_state_requires_a_declaration() -> None:
    failed = failure_of(keyed(VALUE, process=lambda record, states: states.get_state("value")), 1)
    assert failed.cause_message == "get_state requires the declaration of the state, got 'value'."


def test_keyed_state_without_a_key() -> None:
    kept: list[Any] = []

    def keep(record: int, states: Any) -> None:
        kept.append(states.get_state(VALUE))

    driver = keyed(VALUE, process=keep, end_input=lambda ctx: kept[0].value())
    driver.send(1)
    failed = failure_of(driver, ENDED)
    assert (failed.cause_type, failed.callback, failed.key) == ("ContractError", "end_input", None)
    assert failed.cause_message.endswith("Use ctx.apply_to_all_partitions.")


def test_unserializable_value_is_named_with_its_key() -> None:
    driver = keyed(LIST, VALUE, process=lambda record, states: states.get_state(LIST).add(sys.stdout))
    driver.send(1)
    with pytest.raises(SerializationError) as refused:
        driver.restart()
    said = str(refused.value)
    assert said.startswith("Keyed state of KeyedProcess (uid 'f'), defined at ")
    assert f", subtask 0, key 1: {{'list': [{sys.stdout!r}]}} cannot be checkpointed. " in said
    assert said.endswith("Store plain values in states, or the data from which objects can be recreated.")


def test_unserializable_value_is_named_with_its_state() -> None:
    driver = keyed(SHARED, process=lambda record, states: states.get_state(SHARED).add(sys.stdout))
    driver.send(1)
    with pytest.raises(SerializationError) as refused:
        driver.restart()
    said = str(refused.value)
    assert said.startswith("State of KeyedProcess (uid 'f'), defined at ")
    assert f", subtask 0, state 'shared': [{sys.stdout!r}] cannot be checkpointed. " in said


def test_field_with_a_removed_state() -> None:
    driver = driven(lambda stream: stream.key_by(lambda record: record % 2).process(Keeping()).with_uid("f"))
    driver.send(1)
    blob = driver.subtask.snapshot()
    env = local_environment()
    without = one_input(uses_states=list)
    env.from_collection([1], "in").key_by(lambda record: record % 2).process(without).with_uid("f")
    other = Driver(env.build_plan(), "f")
    with pytest.raises(Exception, match="A field refers to the state 'total', which uses_states") as failed:
        other.subtask.restore(blob)
    assert "Process (uid 'f')" in str(failed.value)
