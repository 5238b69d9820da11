"""Timers compared with a model that keeps them in one set: random orders, times and restarts."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.extension.event_time import EventTimeManager, OneInputEventTimeStreamProcessFunction
from dsv2.testing import OneInputHarness
from tests.durations import ms
from tests.strategies import long_lists

Kind: TypeAlias = Literal["event", "processing", "event by clock"]
Fired: TypeAlias = list[tuple[int, int]]
"""Keys and times in the order of firing."""

END = 2**63 - 1


class Change(NamedTuple):
    """Timers to set and to delete."""

    set: tuple[int, ...]
    unset: tuple[int, ...]


class Order(NamedTuple):
    """A record."""

    key: int
    change: Change


Rules: TypeAlias = dict[int, Change]
"""Changes to the timers of the same key, by the time of the firing timer."""


class Alarms(OneInputEventTimeStreamProcessFunction[Order, tuple[int, int]]):
    """Sets and deletes timers as its records and rules require."""

    def __init__(self, kind: Kind, rules: Rules) -> None:
        self.kind = kind
        self.rules = rules

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.event_time = manager

    def process_record(self, record: Order, output: Any, ctx: Any) -> None:
        self.change(record.change, ctx)

    def change(self, change: Change, ctx: Any) -> None:
        manager = ctx.processing_time_manager if self.kind == "processing" else self.event_time
        for time in change.set:
            manager.register_timer(time)
        for time in change.unset:
            manager.delete_timer(time)

    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        output.collect((ctx.state_manager.current_key, timestamp))
        if timestamp in self.rules:
            self.change(self.rules[timestamp], ctx)

    def on_processing_timer(self, timestamp: int, output: Any, ctx: Any) -> None:
        self.on_event_timer(timestamp, output, ctx)


class Model:
    """The timers of each key, in a set."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.timers: defaultdict[int, set[int]] = defaultdict(set)

    def order(self, order: Order) -> None:
        self.timers[order.key] |= {*order.change.set}
        self.timers[order.key] -= {*order.change.unset}

    def pass_to(self, time: int, *, once: bool = False) -> Fired:
        """Return what fires, key by key. ``once`` excludes timers that are set meanwhile."""
        fired = []
        for key, timers in self.timers.items():
            first = set(timers)
            while due := [timer for timer in (timers & first if once else timers) if timer <= time]:
                timer = min(due)
                timers.remove(timer)
                first.discard(timer)
                fired.append((key, timer))
                if timer in self.rules:
                    self.order(Order(key, self.rules[timer]))
        return fired


class Driven:
    """A harness whose time passes."""

    def __init__(self, kind: Kind, rules: Rules) -> None:
        self.kind = kind
        self.harness = OneInputHarness(Alarms(kind, rules), key=lambda order: order.key)
        self.now = 0
        if kind == "event by clock":
            self.harness.input.push_use_processing_time()

    def pass_to(self, time: int) -> Fired:
        if self.kind == "event":
            self.harness.input.push_event_time(time)
        else:
            self.harness.advance_clock(ms(time - self.now))
        self.now = time
        return self.take()

    def end(self) -> Fired:
        self.harness.end()
        return self.take()

    def take(self) -> Fired:
        fired = self.harness.output.records
        self.harness.output.clear()
        return fired

    def pending(self, key: int) -> list[int]:
        timers = self.harness.processing_timers if self.kind == "processing" else self.harness.event_timers
        return timers(key)


def by_key(fired: Fired) -> dict[int, list[int]]:
    times: dict[int, list[int]] = {}
    for key, time in fired:
        times.setdefault(key, []).append(time)
    return times


TIMES = st.integers(1, 100)
CHANGES = st.builds(Change, st.lists(TIMES, max_size=4).map(tuple), st.lists(TIMES, max_size=2).map(tuple))
ORDERS = st.builds(Order, st.integers(0, 300), CHANGES)
STEPS = long_lists(ORDERS | st.integers(1, 30) | st.just("restart"), max_size=40)
# Firing timers set only later timers. Otherwise they could fire forever.
RULES = st.dictionaries(TIMES, st.lists(st.integers(1, 120), max_size=3).map(tuple), max_size=10).map(
    lambda rules: {time: Change(tuple(s for s in sets if s > time), sets) for time, sets in rules.items()}
)


@pytest.mark.parametrize("kind", ["event", "processing", "event by clock"])
@given(steps=STEPS, rules=RULES)
def test_timers_fire_as_in_the_model(kind: Kind, steps: list[Any], rules: Rules) -> None:
    driven, model = Driven(kind, rules), Model(rules)
    keys = set()
    for step in steps:
        match step:
            case Order():
                driven.harness.input.push(step)
                model.order(step)
                keys.add(step.key)
            case int():
                now = driven.now
                fired = driven.pass_to(now + step)
                # Processing timers that are due fire before the clock advances.
                expected = [] if kind == "event" else model.pass_to(now)
                expected += model.pass_to(now + step)
                assert by_key(fired) == by_key(expected)
                if not rules:
                    assert [time for _, time in fired] == sorted(time for _, time in fired)
            case _:
                driven.harness.restart()
                assert by_key(driven.take()) == by_key([] if kind == "event" else model.pass_to(driven.now))
        for key in keys:
            assert driven.pending(key) == sorted(model.timers[key])
        assert driven.harness.progress.subtasks[0].timers == sum(map(len, model.timers.values()))
    assert by_key(driven.end()) == by_key(model.pass_to(END, once=kind == "processing"))
