"""Wrong uses of states."""

from __future__ import annotations

from datetime import timedelta

from dsv2 import Collector, NonPartitionedContext, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.model import StateManager, SubtaskStateManager
from dsv2.state import (
    ListStateDeclaration,
    RedistributionStrategy,
    StateDeclarations,
    StateTtl,
    ValueState,
    ValueStateDeclaration,
    aggregate_of,
)

COUNT = StateDeclarations.value_state("count", int)
COUNT_OR_0 = StateDeclarations.value_state("count", int, default=0)
WORDS = StateDeclarations.list_state("words", str)
LENGTHS = StateDeclarations.map_state("lengths", str, int)
RULES = StateDeclarations.map_state_builder("rules", str, int).build_broadcast()
LONGEST = StateDeclarations.reducing_state("longest", str, max)


def add_length(word: str, total: int) -> int:
    return total + len(word)


TOTAL = StateDeclarations.aggregating_state("total", int, aggregate_of(int, add_length, str))


def values(manager: StateManager) -> None:
    count = manager.get_state(COUNT)
    count.value() + 1  # E: operator
    count.update("1")  # E: arg-type
    count.update(None)  # E: arg-type
    manager.get_state(COUNT_OR_0).value().upper()  # E: attr-defined
    count.update_with(lambda value: value + 1)  # E: operator
    count.update_with(str)  # E: arg-type
    never_none: ValueState[int, int] = count  # E: assignment
    print(never_none)


def others(manager: StateManager) -> None:
    manager.get_state(WORDS).add(1)  # E: arg-type
    manager.get_state(WORDS).add_all([1])  # E: list-item
    manager.get_state(WORDS).get().append(1)  # E: arg-type
    manager.get_state(LENGTHS).get(1)  # E: call-overload
    manager.get_state(LENGTHS).get("a") + 1  # E: operator
    manager.get_state(LENGTHS).put("a", "b")  # E: arg-type
    manager.get_state(LENGTHS).update_with("a", lambda length: length + 1)  # E: operator
    manager.get_state(LENGTHS).update_with("a", lambda length: length + 1, "0")  # E: call-overload
    manager.get_state(LENGTHS).put_all({1: 1})  # E: dict-item
    manager.get_state(LONGEST).add(1)  # E: arg-type
    manager.get_state(LONGEST).get().upper()  # E: union-attr
    manager.get_state(TOTAL).add(1)  # E: arg-type
    manager.get_state(TOTAL).get().upper()  # E: union-attr
    StateDeclarations.aggregating_state("total", str, aggregate_of(int, add_length, str))  # E: misc
    manager.get_state_optional(WORDS).get()  # E: union-attr


def states_of_the_subtask(manager: SubtaskStateManager) -> None:
    manager.get_state(COUNT).value()  # E: call-overload
    manager.get_state(LENGTHS).clear()  # E: call-overload
    manager.get_state(LONGEST).clear()  # E: call-overload
    manager.get_state(TOTAL).clear()  # E: call-overload
    manager.get_state_optional(COUNT)  # E: call-overload
    manager.get_state_optional(RULES).clear()  # E: union-attr
    manager.get_state(RULES).put(1, "a")  # E: arg-type
    print(manager.current_key)  # E: attr-defined
    with_keys: StateManager = manager  # E: assignment
    print(with_keys)


def declarations(manager: StateManager) -> None:
    manager.get_state("words")  # E: arg-type
    manager.get_state(StateDeclarations.list_state_builder("words", str))  # E: arg-type
    StateDeclarations.reducing_state("longest", str, abs)  # E: arg-type
    StateDeclarations.list_state("words", 7)  # E: arg-type
    StateDeclarations.list_state_builder("words", str).redistribute_by("SPLIT")  # E: arg-type
    StateDeclarations.value_state("count", int, ttl=1000)  # E: call-overload
    ListStateDeclaration("words", str, RedistributionStrategy.SPLIT)  # E: arg-type
    StateTtl("1 h")  # E: arg-type
    StateTtl(60_000)  # E: arg-type
    StateTtl(timedelta(hours=1), "on-write")  # E: arg-type
    StateTtl(timedelta(hours=1)).duration = timedelta(1)  # E: misc
    ValueStateDeclaration[int, int]("count", int, "0")  # E: call-overload


class Mistaken(OneInputStreamProcessFunction[int, bytes]):
    def uses_states(self) -> list[str]:  # E: override
        return ["count"]

    def process_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
        ctx.get_state(COUNT)  # E: attr-defined
        output.collect(ctx.state_manager.get_state(COUNT).value())  # E: arg-type

    def end_input(self, ctx: NonPartitionedContext[bytes]) -> None:
        ctx.state_manager.get_state(COUNT)  # E: call-overload
