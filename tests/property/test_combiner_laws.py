"""Combiners compared with models, for any order of arrivals and of channels that become inactive and active.

The models follow the definition: a channel that sent nothing has the neutral value, and so does an inactive one once
its last value has counted. Their only state is the history.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.watermark import WatermarkDeclaration, extremum, new_builder
from dsv2.watermark.combiner import Combiner, new_combiner
from tests.profiles import examples

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
# An example takes microseconds. A deadline would only measure the load of the machine.
law = examples(150)

What: TypeAlias = Literal["update", "deactivate", "activate", "end"]
Event: TypeAlias = tuple[What, int, int]


@dataclass(frozen=True)
class Function:
    """A combination function by its definition: it combines two values, and has a neutral value."""

    name: str
    of_two: Callable[[int, int], int]
    neutral: int
    values: Sequence[int]

    def fold(self, values: Iterable[int]) -> int:
        combined = self.neutral
        for value in values:
            combined = self.of_two(combined, value)
        return combined

    def declare(self, wait: bool, aligned: bool = False) -> WatermarkDeclaration:
        start = new_builder("w")
        typed = start.type_long() if self.name in ("min", "max") else start.type_bool()
        function = getattr(typed, f"combine_function_{self.name}")()
        declaration: WatermarkDeclaration = function.combine_wait_for_all_channels(wait).aligned(aligned).build()
        return declaration


LONGS = (LONG_MIN, -1, 0, 1, 2, 3, LONG_MAX)
FUNCTIONS = (
    Function("min", lambda a, b: a if a < b else b, LONG_MAX, LONGS),
    Function("max", lambda a, b: a if a > b else b, LONG_MIN, LONGS),
    Function("and", lambda a, b: a and b, True, (False, True)),
    Function("or", lambda a, b: a or b, False, (False, True)),
)


@dataclass
class Model:
    """The output of a plain combiner."""

    function: Function
    wait: bool
    channels: int
    sent: dict[int, int] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    uncounted: dict[int, int] = field(default_factory=dict)
    came_back: bool = False
    delivered: list[int] = field(default_factory=list)

    def step(self, what: What, channel: int, value: int) -> list[int]:
        self.came_back = self.came_back or what == "activate"
        if what == "update":
            self.sent[channel] = self.uncounted[channel] = value
        else:
            note(self.idle, self.ended, what, channel)
        active = set(range(self.channels)) - self.idle - self.ended
        if self.wait and active - self.sent.keys():
            return []
        before = len(self.delivered)
        present = {channel: self.sent[channel] for channel in active & self.sent.keys()}
        counted = self.uncounted | present
        if counted and (self.uncounted or self.came_back):
            self.deliver(self.function.fold(counted.values()))
            self.uncounted, self.came_back = {}, False
        if present and self.function.fold(present.values()) > self.delivered[-1]:
            self.deliver(self.function.fold(present.values()))  # inactive channels hold nothing back
        return self.delivered[before:]

    def deliver(self, combined: int) -> None:
        if self.delivered[-1:] != [combined]:
            self.delivered.append(combined)


@dataclass
class AlignedModel:
    """The output of an aligned combiner."""

    function: Function
    channels: int
    waiting: dict[int, list[int]] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)

    def step(self, what: What, channel: int, value: int) -> list[int]:
        if what == "update":
            self.waiting.setdefault(channel, []).append(value)
        else:
            note(self.idle, self.ended, what, channel)
        delivered = []
        while self.waiting and not set(range(self.channels)) - self.idle - self.ended - self.waiting.keys():
            delivered.append(self.function.fold(values.pop(0) for values in self.waiting.values()))
            self.waiting = {channel: values for channel, values in self.waiting.items() if values}
        return delivered


def note(idle: set[int], ended: set[int], what: What, channel: int) -> None:
    if what == "end":
        ended.add(channel)
    else:
        (idle.add if what == "deactivate" else idle.discard)(channel)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Function, int, list[Event]]:
    function, channels = draw(st.sampled_from(FUNCTIONS)), draw(st.integers(1, 4))
    kinds: st.SearchStrategy[What] = st.sampled_from(("update", "update", "update", "deactivate", "activate", "end"))
    event = st.tuples(kinds, st.integers(0, channels - 1), st.sampled_from(function.values))
    return function, channels, until_the_end(draw(st.lists(event, min_size=2, max_size=20)))


def until_the_end(events: list[Event]) -> list[Event]:
    """The events without those of a channel after its end."""
    ended = set[int]()
    left = []
    for event in events:
        if event[1] not in ended:
            left.append(event)
        if event[0] == "end":
            ended.add(event[1])
    return left


def apply(combiner: Combiner, event: Event) -> list[int]:
    """The output for ``event``."""
    what, channel, value = event
    delivered = combiner.update(channel, value) if what == "update" else getattr(combiner, what)(channel)
    values = []
    while delivered is not None:
        values.append(delivered)
        delivered = combiner.following()
    return values


def reloaded(combiner: Combiner, declaration: WatermarkDeclaration, channels: int) -> Combiner:
    """A new combiner with the state of ``combiner``, passed as the text of plain literals."""
    other = new_combiner(declaration, channels)
    other.restore(literal_eval(repr(combiner.snapshot())))
    assert other.snapshot() == combiner.snapshot()
    return other


@law
@given(histories(), st.booleans())
def test_combiner_matches_the_model_at_every_step(history: tuple[Function, int, list[Event]], wait: bool) -> None:
    function, channels, events = history
    model, combiner = Model(function, wait, channels), new_combiner(function.declare(wait), channels)
    for event in events:
        # repr: True is not 1.
        assert repr(apply(combiner, event)) == repr(model.step(*event)), event


def test_the_heap_of_many_channels_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extremum, "_FEW", 0)
    test_combiner_matches_the_model_at_every_step()


@law
@given(histories())
def test_aligned_combiner_delivers_once_per_round(history: tuple[Function, int, list[Event]]) -> None:
    function, channels, events = history
    model = AlignedModel(function, channels)
    combiner = new_combiner(function.declare(wait=True, aligned=True), channels)
    for event in events:
        assert repr(apply(combiner, event)) == repr(model.step(*event)), event


@law
@given(histories(), st.booleans(), st.booleans())
def test_restart_between_any_two_steps_changes_nothing(
    history: tuple[Function, int, list[Event]], wait: bool, aligned: bool
) -> None:
    function, channels, events = history
    declaration = function.declare(wait or aligned, aligned)
    steady = restarted = new_combiner(declaration, channels)
    for event in events:
        restarted = reloaded(restarted, declaration, channels)
        assert apply(restarted, event) == apply(steady, event), event


@law
@given(histories(), st.booleans(), st.booleans(), st.data())
def test_initially_inactive_channels_equal_deactivated_ones(
    history: tuple[Function, int, list[Event]], wait: bool, aligned: bool, data: st.DataObject
) -> None:
    function, channels, events = history
    gone = data.draw(st.sets(st.integers(0, channels - 1)))
    declaration = function.declare(wait or aligned, aligned)
    told, born = new_combiner(declaration, channels), new_combiner(declaration, channels, gone)
    for channel in gone:
        told.deactivate(channel)
    assert [apply(born, event) for event in events] == [apply(told, event) for event in events]
