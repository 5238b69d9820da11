"""Skipped records leave nothing behind: results and state are those of the input without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ErrorPolicy, OutputTag
from dsv2.extension.event_time import EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.extension.join import JoinFunction, JoinMode, JoinType, join
from dsv2.extension.window import (
    CountTrigger,
    OneInputWindowStreamProcessFunction,
    PurgingTrigger,
    TimeType,
    TriggerContext,
    TriggerResult,
    WindowAssigner,
    WindowStrategy,
    WindowTrigger,
)
from dsv2.extension.window.process_functions import aggregated, windowed
from dsv2.extension.window.strategy import CountWindowStrategy
from dsv2.state import RedistributionStrategy, StateDeclaration, StateDeclarations, StateTtl, aggregate_of
from dsv2.testing import OneInputHarness, TwoInputNonBroadcastHarness
from dsv2.watermark import WatermarkDeclaration, new_builder
from dsv2.watermark.event_time import LONG_MAX
from tests.durations import ms
from tests.profiles import examples

SKIP = ErrorPolicy().skip(ZeroDivisionError)
SEEN = new_builder("seen").type_long().combine_function_max().build()
NOTES = OutputTag("notes", str)


class Item(NamedTuple):
    """A record. Its callback fails if ``poison``."""

    key: str
    value: int
    poison: bool = False


@dataclass
class Box:
    """A value that is changed in place."""

    items: list[int]


VALUE = StateDeclarations.value_state("value", int, default=0)
BOX = StateDeclarations.value_state("box", Box)
LIST = StateDeclarations.list_state("list", int)
BOXES = StateDeclarations.list_state("boxes", Box)
MAP = StateDeclarations.map_state("map", int, Box)
SUM = StateDeclarations.reducing_state("sum", int, lambda one, other: one + other)


def no_items() -> Box:
    return Box([])


def total_of(box: Box) -> int:
    return sum(box.items)


def merged(one: Box, other: Box) -> Box:
    return Box(one.items + other.items)


def add_to(item: int, box: Box) -> Box:
    box.items.append(item)
    return box


MEAN = StateDeclarations.aggregating_state(
    "mean", Box, aggregate_of(lambda: Box([]), add_to, lambda box: sum(box.items))
)
TTL = StateTtl(ms(50))
EXPIRING = StateDeclarations.value_state("expiring", Box, ttl=TTL)
EXPIRING_LIST = StateDeclarations.list_state("expiring list", int, ttl=TTL)
EXPIRING_MAP = StateDeclarations.map_state("expiring map", int, int, ttl=TTL)
BY_EVENT = StateTtl(ms(8), time_characteristic="event-time")
AGING = StateDeclarations.value_state("aging", Box, ttl=BY_EVENT)
AGING_LIST = StateDeclarations.list_state("aging list", int, ttl=BY_EVENT)
AGING_MAP = StateDeclarations.map_state("aging map", int, int, ttl=BY_EVENT)
SHARED = StateDeclarations.list_state_builder("shared", int).redistribute_by(RedistributionStrategy.SPLIT).build()
STATES: Sequence[StateDeclaration] = (
    VALUE, BOX, LIST, BOXES, MAP, SUM, MEAN, EXPIRING, EXPIRING_LIST, EXPIRING_MAP,
    AGING, AGING_LIST, AGING_MAP, SHARED,
)  # fmt: skip


def fail_if(poison: bool) -> None:
    assert not poison or 1 // 0


class Everything(OneInputEventTimeStreamProcessFunction[Item, Any]):
    """Changes every kind of state, timers, outputs and watermarks, and then fails for some records and timers."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [SEEN]

    def declare_outputs(self) -> list[OutputTag[Any]]:
        return [NOTES]

    def uses_states(self) -> Sequence[StateDeclaration]:
        return STATES

    def init_event_time_process_function(self, event_time_manager: EventTimeManager) -> None:
        self.time = event_time_manager

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        self.change(record.value, output, ctx)
        fail_if(record.poison)

    def change(self, number: int, output: Any, ctx: Any) -> None:
        state: Callable[[Any], Any] = ctx.state_manager.get_state
        state(VALUE).update(state(VALUE).value() + number)
        box = state(BOX).value() or Box([])
        box.items.append(number)
        state(BOX).update(box)
        state(LIST).add(number)
        for one in state(BOXES).get():
            one.items.append(number)
        state(BOXES).add(Box([number]))
        held = state(MAP).get(number % 3) or Box([])
        held.items.append(number)
        state(MAP).put(number % 3, held)
        if number % 4 == 0:
            state(MAP).remove(1)
            state(LIST).clear()
        state(SUM).add(number)
        state(MEAN).add(number)
        cell = state(EXPIRING).value() or Box([])
        cell.items.append(number)
        state(EXPIRING).update(cell)
        state(EXPIRING_LIST).add(number)
        state(EXPIRING_MAP).put(number % 2, number)
        if ctx.timestamp is not None:
            aging = state(AGING).value() or Box([])
            aging.items.append(number)
            state(AGING).update(aging)
            state(AGING_LIST).add(number)
            state(AGING_MAP).put(number % 2, number)
        state(SHARED).add(number)
        timers = ctx.processing_time_manager
        timers.register_timer(timers.current_time() + number % 7 + 1)
        timers.delete_timer(timers.current_time() + 3)
        if (now := self.time.current_time()) < LONG_MAX:
            self.time.register_timer(max(now, 0) + number % 5 + 1)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(SEEN.new_watermark(number))
        output.collect(("record", number, state(MEAN).get(), state(VALUE).value()))
        output.collect_and_overwrite_timestamp(("stamped", number), number)
        ctx.output(NOTES, str(number))

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        if timestamp % 5:
            self.change(timestamp % 10, output, ctx)
            fail_if(self.fails and timestamp % 3 == 0)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect(("event", timestamp))
        ctx.state_manager.get_state(VALUE).update(timestamp)
        fail_if(self.fails and timestamp % 3 == 0)

    fails = True


class Careful(Everything):
    """Does nothing for what would fail."""

    fails = False

    def process_record(self, record: Item, output: Any, ctx: Any) -> None:
        if not record.poison:
            super().process_record(record, output, ctx)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        if timestamp % 3:
            super().on_processing_timer(timestamp, output, ctx)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        if timestamp % 3:
            super().on_event_timer(timestamp, output, ctx)


ITEMS = st.builds(Item, st.sampled_from("abc"), st.integers(0, 30), st.booleans())
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), st.lists(ITEMS, min_size=1, max_size=4)),
        st.tuples(st.just("event time"), st.integers(0, 40)),
        st.tuples(st.just("clock"), st.integers(1, 20)),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=25,
)


def key_of(item: Item) -> str:
    return item.key


def contents(harness: Any) -> dict[Any, Any]:
    """All state and timers of each key."""

    def read(ctx: Any) -> Any:
        read = ctx.state_manager.get_state
        states = {state.name: read(state) for state in STATES}
        values = [states[name].value() for name in ("value", "box", "expiring", "aging")]
        names = ("list", "boxes", "sum", "mean", "expiring list", "aging list", "shared")
        maps = [sorted(states[name].items()) for name in ("map", "expiring map", "aging map")]
        return values, [states[name].get() for name in names], maps

    return {
        key: (harness.visit(read, key), harness.event_timers(key), harness.processing_timers(key))
        for key in sorted(harness.keys)
    }


@examples(30)
@given(steps=STEPS)
def test_function_continues_as_without_what_failed(steps: list[tuple[str, Any]]) -> None:
    tolerant = OneInputHarness(Everything(), key=key_of, error_policy=SKIP)
    careful = OneInputHarness(Careful(), key=key_of)
    now = 0
    for what, value in steps:
        for harness in (tolerant, careful):
            if what == "records":
                of_harness = value if harness is tolerant else [item for item in value if not item.poison]
                harness.input.push(*of_harness, timestamp=now)
            elif what == "event time":
                harness.input.push_event_time(max(now, value))
            elif what == "clock":
                harness.advance_clock(ms(value))
            else:
                harness.restart()
        if what == "event time":
            now = max(now, value)
        assert tolerant.output.elements == careful.output.elements
        assert tolerant.side_output(NOTES).elements == careful.side_output(NOTES).elements
        assert contents(tolerant) == contents(careful)
    for harness in (tolerant, careful):
        harness.end()
    assert tolerant.output.elements == careful.output.elements
    assert contents(tolerant) == contents(careful)


class FailingWindows(OneInputWindowStreamProcessFunction[Item, Any]):
    """Fails in ``on_record``, after the record was stored, and for windows with a multiple of 7."""

    def __init__(self, fires_by_time: bool) -> None:
        self.fires_by_time = fires_by_time  # otherwise a window fires as part of a record

    def on_record(self, record: Item, output: Any, ctx: Any, window: Any) -> None:
        window.put_record(record)
        output.collect(("record", record.value))
        fail_if(record.poison)

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        output.collect(("window", window.start_time, [item.value for item in window.get_all_records()]))
        fail_if(self.fires_by_time and any(item.value % 7 == 0 for item in window.get_all_records()))

    def on_late_record(self, record: Item, output: Any, ctx: Any) -> None:
        output.collect(("late", record.value))
        fail_if(record.poison)


class CarefulWindows(FailingWindows):
    """Does nothing for windows that would fail."""

    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
        if not self.fires_by_time or all(item.value % 7 for item in window.get_all_records()):
            super().on_trigger(output, ctx, window)


def sum_of(item: Item, box: Box) -> Box:
    box.items.append(item.value)
    fail_if(item.poison)
    return box


class Changing(WindowTrigger[Item]):
    """Changes its state in place, registers and deletes timers, and then fails for every fifth value."""

    def on_record(self, record: Item, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        assert timestamp is not None
        if ctx.state is None:
            ctx.state = {"values": []}
        values = ctx.state["values"]
        values.append(record.value)
        ctx.register_event_timer(timestamp + 3)
        ctx.delete_event_timer(timestamp + 4)
        fail_if(record.value % 5 == 0)
        return TriggerResult.FIRE if sum(values) % 3 == 0 else TriggerResult.CONTINUE

    def on_event_time(self, timestamp: int, ctx: TriggerContext) -> TriggerResult:
        ctx.state["values"].append(1)
        return TriggerResult.FIRE_AND_PURGE

    def merge(self, states: Sequence[Any]) -> Any:
        return {"values": [value for state in states if state for value in state["values"]]}


class Thirds(WindowAssigner[Item]):
    """Assigns a record to a window of 3 ms, and to one of 9 ms."""

    def assign_windows(self, record: Item, timestamp: int) -> list[tuple[int, int]]:
        return [(timestamp - timestamp % size, timestamp - timestamp % size + size) for size in (3, 9)]


STRATEGIES = [
    WindowStrategy.tumbling(ms(10)),
    WindowStrategy.tumbling(ms(10)).with_timestamps("latest"),
    WindowStrategy.session(ms(6)).with_allowed_lateness(ms(4)).with_timestamps("earliest"),
    WindowStrategy.of_records(ms(4)),
    WindowStrategy.assigned_by(Thirds()),
    WindowStrategy.tumbling(ms(10)).with_allowed_lateness(ms(5)),
    WindowStrategy.tumbling(ms(20)).with_early_firing(ms(5), TimeType.EVENT),
    WindowStrategy.sliding(ms(10), ms(5)),
    WindowStrategy.session(ms(6)),
    WindowStrategy.count(3),
    WindowStrategy.count(3, 2),
    WindowStrategy.global_(),
    WindowStrategy.tumbling(ms(10)).with_allowed_lateness(ms(5)).with_trigger(Changing()),
    WindowStrategy.session(ms(6)).with_trigger(Changing()),
    WindowStrategy.global_().with_trigger(Changing()),
    WindowStrategy.sliding(ms(10), ms(5)).with_trigger(PurgingTrigger(CountTrigger(2))),
]


def by_time(strategy: WindowStrategy) -> bool:
    if strategy.trigger is not None or isinstance(strategy, CountWindowStrategy):
        return False
    return not getattr(strategy, "allowed_lateness", 0)


CARELESS: dict[str, Callable[[WindowStrategy], Any]] = {
    "window": lambda strategy: tuple(
        windowed(strategy, kind(by_time(strategy))) for kind in (FailingWindows, CarefulWindows)
    ),
    "aggregate": lambda strategy: (aggregated(strategy, aggregate_of(no_items, sum_of, total_of, merged)),) * 2,
}


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.layout)
@pytest.mark.parametrize("kind", CARELESS)
@examples(8)
@given(steps=STEPS)
def test_windows_continue_as_without_what_failed(
    kind: str, strategy: WindowStrategy, steps: list[tuple[str, Any]]
) -> None:
    first, second = CARELESS[kind](strategy)
    harnesses = (
        OneInputHarness(first, key=key_of, error_policy=SKIP, checks=False),
        OneInputHarness(second, key=key_of, checks=False),
    )
    compare(harnesses, steps)


def inputs_of(harness: Any) -> list[Any]:
    return [harness.input] if hasattr(harness, "input") else [harness.first_input, harness.second_input]


def skipped_by(harness: Any) -> int:
    return int(harness.progress.counters.get("errors_skipped", 0))


def compare(harnesses: Any, steps: list[tuple[str, Any]]) -> None:
    """Push the same to both, but to the second only what the first has not skipped. Both must emit the same."""
    tolerant, other = harnesses
    for what, value in [*steps, ("end", None)]:
        for item in value if what == "records" else ():
            before = skipped_by(tolerant)
            for harness in harnesses:
                if harness is tolerant or skipped_by(tolerant) == before:
                    inputs_of(harness)[item.value % len(inputs_of(harness))].push(item, timestamp=item.value)
        for harness in harnesses:
            inputs = inputs_of(harness)
            if what == "event time":
                for one in inputs:
                    one.push_event_time(value)
            elif what == "clock":
                harness.advance_clock(ms(value))
            elif what == "restart":
                harness.restart()
            elif what == "end":
                harness.end()
        # A failed record may change the order of the keys in a window.
        first, second = ([*map(repr, harness.output.elements)] for harness in harnesses)
        assert sorted(first) == sorted(second)
        assert sorted(tolerant.keys) == sorted(other.keys)


class Pairs(JoinFunction[Any, Any, Any]):
    """Fails for pairs with poisoned records."""

    def process_record(self, left: Any, right: Any, output: Any, ctx: Any) -> None:
        output.collect((left and left.value, right and right.value))
        fail_if(left is not None and right is not None and (left.poison or right.poison))


JOINS: dict[str, Callable[[], Any]] = {
    "join": lambda: join(Pairs()),
    **{
        f"interval {kind.value}": (lambda kind=kind: join(Pairs(), JoinMode.interval(ms(-8), ms(8)), kind))  # type: ignore[misc]
        for kind in (JoinType.INNER, JoinType.FULL)
    },
}


@pytest.mark.parametrize("kind", JOINS)
@examples(8)
@given(steps=STEPS)
def test_joins_continue_as_without_what_failed(kind: str, steps: list[tuple[str, Any]]) -> None:
    keys: Any = {"first_key": key_of, "second_key": key_of, "checks": False}
    tolerant: Any = TwoInputNonBroadcastHarness(JOINS[kind](), error_policy=SKIP, **keys)
    if kind == "join":  # it has no event time
        steps = [step for step in steps if step[0] != "event time"]
    compare((tolerant, TwoInputNonBroadcastHarness(JOINS[kind](), **keys)), steps)
