"""The laws of combining, for any order of arrivals and of channels that go inactive and active again.

The models say what a combiner must answer, from the definition: a channel that sent nothing, or is inactive, holds
the neutral value. They keep no state but what has happened so far.
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dsv2.watermark import WatermarkDeclaration, new_builder
from dsv2.watermark.combiner import Combiner, new_combiner

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
# An example takes microseconds; a deadline would only measure what else the machine does.
law = settings(max_examples=300, deadline=None)

Event: TypeAlias = tuple[Literal["update", "deactivate", "activate"], int, int]


@dataclass(frozen=True)
class Function:
    """A combination function by its definition: two values into one, and the value that changes nothing."""

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
    """What a plain combiner delivers."""

    function: Function
    wait: bool
    channels: int
    sent: dict[int, int] = field(default_factory=dict)
    inactive: set[int] = field(default_factory=set)
    delivered: list[int] = field(default_factory=list)

    def step(self, what: str, channel: int, value: int) -> int | None:
        record(self.sent, self.inactive, what, channel, value)
        active = set(range(self.channels)) - self.inactive
        heard = [channel in self.sent for channel in active]
        ready = bool(heard) and (all if self.wait else any)(heard)
        counted = [self.sent[channel] for channel in active & self.sent.keys()]
        if what == "deactivate" and not active and self.sent and not self.delivered:
            ready, counted = True, list(self.sent.values())  # the last words
        combined = self.function.fold(counted)
        if not ready or self.delivered[-1:] == [combined]:
            return None
        self.delivered.append(combined)
        return combined


@dataclass
class AlignedModel:
    """What an aligned combiner delivers."""

    function: Function
    channels: int
    arrived: dict[int, int] = field(default_factory=dict)
    inactive: set[int] = field(default_factory=set)

    def step(self, what: str, channel: int, value: int) -> int | None:
        record(self.arrived, self.inactive, what, channel, value)
        # A channel that comes back cannot complete a round: either it was not missing, or it is missing now.
        if what == "activate" or not self.arrived or set(range(self.channels)) - self.inactive - self.arrived.keys():
            return None
        values, self.arrived = self.arrived.values(), {}
        return self.function.fold(values)


def record(sent: dict[int, int], inactive: set[int], what: str, channel: int, value: int) -> None:
    if what == "update":
        sent[channel] = value
    else:
        (inactive.add if what == "deactivate" else inactive.discard)(channel)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Function, int, list[Event]]:
    function, channels = draw(st.sampled_from(FUNCTIONS)), draw(st.integers(1, 4))
    kinds: st.SearchStrategy[Literal["update", "deactivate", "activate"]] = st.sampled_from(
        ("update", "update", "deactivate", "activate")
    )
    event = st.tuples(kinds, st.integers(0, channels - 1), st.sampled_from(function.values))
    return function, channels, draw(st.lists(event, min_size=2, max_size=20))


def apply(combiner: Combiner, event: Event) -> int | None:
    what, channel, value = event
    if what == "update":
        return combiner.update(channel, value)
    return combiner.deactivate(channel) if what == "deactivate" else combiner.activate(channel)


def reloaded(combiner: Combiner, declaration: WatermarkDeclaration, channels: int) -> Combiner:
    """A new combiner with the state of ``combiner``, carried as the text of plain literals."""
    other = new_combiner(declaration, channels)
    other.restore(literal_eval(repr(combiner.snapshot())))
    assert other.snapshot() == combiner.snapshot()
    return other


@law
@given(histories(), st.booleans())
def test_delivers_what_the_model_says_at_every_step(history: tuple[Function, int, list[Event]], wait: bool) -> None:
    function, channels, events = history
    model, combiner = Model(function, wait, channels), new_combiner(function.declare(wait), channels)
    for event in events:
        # repr: True is not 1.
        assert repr(apply(combiner, event)) == repr(model.step(*event)), event


@law
@given(histories())
def test_an_aligned_combiner_delivers_once_per_round(history: tuple[Function, int, list[Event]]) -> None:
    function, channels, events = history
    model = AlignedModel(function, channels)
    combiner = new_combiner(function.declare(wait=True, aligned=True), channels)
    for event in events:
        if event[0] == "update" and event[1] in model.arrived.keys() | model.inactive:
            continue  # the caller holds such a channel back, or it has nothing to say
        assert repr(apply(combiner, event)) == repr(model.step(*event)), event


@law
@given(histories(), st.booleans(), st.booleans())
def test_a_restart_between_any_two_steps_changes_nothing(
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
def test_channels_that_were_inactive_from_the_start_are_as_if_they_had_just_gone(
    history: tuple[Function, int, list[Event]], wait: bool, aligned: bool, data: st.DataObject
) -> None:
    function, channels, events = history
    gone = data.draw(st.sets(st.integers(0, channels - 1)))
    declaration = function.declare(wait or aligned, aligned)
    told, born = new_combiner(declaration, channels), new_combiner(declaration, channels, gone)
    for channel in gone:
        told.deactivate(channel)
    assert [apply(born, event) for event in events] == [apply(told, event) for event in events]


@law
@given(st.sampled_from(FUNCTIONS), st.data())
def test_what_was_held_back_for_a_channel_that_never_spoke_is_the_last_word(
    function: Function, data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.sampled_from(function.values), min_size=1, max_size=4))
    combiner = new_combiner(function.declare(wait=True), len(values) + 1)
    assert [combiner.update(channel, value) for channel, value in enumerate(values)] == [None] * len(values)
    ends = data.draw(st.permutations(range(len(values))))
    assert [combiner.deactivate(channel) for channel in ends] == [None] * len(values)
    assert combiner.deactivate(len(values)) == function.fold(values)


@law
@given(st.sampled_from(FUNCTIONS), st.booleans(), st.data())
def test_the_final_value_depends_on_no_interleaving(function: Function, wait: bool, data: st.DataObject) -> None:
    """Each channel says its part and may then end. One stays, so that it is not the order of the ends that counts."""
    parts = data.draw(st.lists(st.lists(st.sampled_from(function.values), max_size=4), min_size=1, max_size=4))
    assume(parts[0])
    ends = [data.draw(st.booleans()) and channel > 0 for channel in range(len(parts))]
    turns = [channel for channel, part in enumerate(parts) for _ in range(len(part) + ends[channel])]

    def final(order: Sequence[int]) -> int | None:
        combiner, scripts, last = new_combiner(function.declare(wait), len(parts)), [iter(part) for part in parts], None
        for channel in order:
            value = next(scripts[channel], None)
            delivered = combiner.deactivate(channel) if value is None else combiner.update(channel, value)
            last = last if delivered is None else delivered
        return last

    assert final(data.draw(st.permutations(turns))) == final(data.draw(st.permutations(turns)))
