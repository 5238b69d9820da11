"""The combiners of every type of values and every combination, against models that only keep the history.

In the models a combination is a function of the last values of all channels, written by its definition: a channel that
sent nothing does not count, nor does an inactive one once its last value has counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.watermark import VectorClock, WatermarkDeclaration, extremum, new_builder
from dsv2.watermark.channel_rules import ChannelChange, rules_of
from dsv2.watermark.combiner import Combiner, new_combiner
from tests.profiles import examples

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
law = examples(150)

What: TypeAlias = Literal["update", "deactivate", "activate", "end"]
Event: TypeAlias = tuple[What, int, Any]
Rule: TypeAlias = Literal["advances", "recomputed"]


@dataclass(frozen=True, order=True)
class Version:
    """An ordered value."""

    major: int
    tag: str


@dataclass(frozen=True)
class Case:
    """A combination by its definition, and what happens when a channel leaves."""

    name: str
    start: Callable[[], Any]
    fold: Callable[[Sequence[Any]], Any]
    values: Sequence[Any]
    rule: Rule

    def declare(self, wait: bool = False, aligned: bool = False) -> WatermarkDeclaration:
        builder = self.start().combine_wait_for_all_channels(wait or aligned).aligned(aligned)
        declaration: WatermarkDeclaration = builder.build()
        return declaration


def builder() -> Any:
    return new_builder("w")


def entries(vectors: Sequence[Mapping[str, int]], best: Callable[[Any], int]) -> VectorClock:
    names = {name for vector in vectors for name in vector}
    return VectorClock({name: best(vector[name] for vector in vectors if name in vector) for name in names})


def kth_greatest(values: Sequence[Any], k: int) -> Any:
    reached = [one for one in values if sum(other >= one for other in values) >= k]
    return max(reached) if reached else None


def lower_median(values: Sequence[Any]) -> Any:
    return min(one for one in values if 2 * sum(other <= one for other in values) >= len(values))


LONGS, BOOLS = (LONG_MIN, -1, 0, 1, 2, 3, LONG_MAX), (False, True)
NUMBERS = (-2, 0, 1, 5)
FLOATS = (-0.5, 0.0, 0.1, 0.2, 0.3, 2.0**60)
TEXTS = ("", "a", "ab", "b")
SETS = tuple(map(frozenset, ("", "a", "b", "ab", "abc")))
VECTORS = tuple(map(VectorClock, ({}, {"p": 1}, {"p": 2, "q": 1}, {"q": 3}, {"p": 0, "q": 3})))
VERSIONS = (Version(1, "a"), Version(1, "b"), Version(2, "a"))


def sorted_union(one: str, other: str) -> str:
    return "".join(sorted({*one, *other}))


ORDERED = (
    Case("min", lambda: builder().type_long().combine_function_min(), min, LONGS, "advances"),
    Case("max", lambda: builder().type_long().combine_function_max(), max, LONGS, "advances"),
    Case("and", lambda: builder().type_bool().combine_function_and(), min, BOOLS, "advances"),
    Case("or", lambda: builder().type_bool().combine_function_or(), max, BOOLS, "advances"),
)
CASES = (
    *ORDERED,
    Case("str min", lambda: builder().type_str().combine_function_min(), min, TEXTS, "advances"),
    Case("str max", lambda: builder().type_str().combine_function_max(), max, TEXTS, "advances"),
    Case("class min", lambda: builder().type_of(Version).combine_function_min(), min, VERSIONS, "advances"),
    Case("float min", lambda: builder().type_float().deliver_when(lambda new, old: True), min, FLOATS, "advances"),
    Case("sum", lambda: builder().type_long().combine_function_sum(), sum, NUMBERS, "recomputed"),
    Case("float sum", lambda: builder().type_float().combine_function_sum(),
     lambda values: float(sum(map(int, [value * 2**70 for value in values])) / 2**70), (-0.5, 0.0, 1.5, 2.0**60),
     "recomputed"),
    Case("count", lambda: builder().type_long().combine_function_count(), len, NUMBERS, "recomputed"),
    Case("median", lambda: builder().type_long().combine_function_quantile(0.5), lower_median, NUMBERS, "recomputed"),
    Case("two of them", lambda: builder().type_bool().combine_function_at_least(2),
     lambda values: kth_greatest(values, 2), BOOLS, "recomputed"),
    Case("two reach it", lambda: builder().type_float().combine_function_at_least(2),
     lambda values: kth_greatest(values, 2), FLOATS, "recomputed"),
    Case("union", lambda: builder().type_set(str), lambda values: frozenset().union(*values), SETS, "advances"),
    Case("intersection", lambda: builder().type_set(str).combine_function_intersection(),
     lambda values: frozenset("abc").intersection(*values), SETS, "advances"),
    Case("vector max", lambda: builder().type_vector(), lambda values: entries(values, max), VECTORS, "advances"),
    Case("vector min", lambda: builder().type_vector().combine_function_min(), lambda values: entries(values, min),
     VECTORS, "advances"),
    Case("custom", lambda: builder().type_str().combine(sorted_union, samples=TEXTS, neutral=""),
     lambda values: "".join(sorted(set().union(*values))), TEXTS, "recomputed"),
)  # fmt: skip
ALIGNABLE = [case for case in CASES if case.name not in ("float min", "two of them", "two reach it")]


@dataclass
class Model:
    """The output of a combiner: its only state is the history."""

    case: Case
    wait: bool
    channels: int
    sent: dict[int, Any] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)
    uncounted: dict[int, Any] = field(default_factory=dict)
    came_back: bool = False
    delivered: list[Any] = field(default_factory=list)

    def step(self, what: What, channel: int, value: Any) -> list[Any]:
        if what == "update":
            self.sent[channel] = self.uncounted[channel] = value
        else:
            self.came_back = self.came_back or what == "activate"
            (self.gone.discard if what == "activate" else self.gone.add)(channel)
        active = set(range(self.channels)) - self.gone
        if self.wait and active - self.sent.keys():
            return []
        before = len(self.delivered)
        present = {channel: self.sent[channel] for channel in sorted(active & self.sent.keys())}
        if self.uncounted or (self.came_back and present):
            self.deliver(self.case.fold([*(self.uncounted | present).values()]))
            self.uncounted, self.came_back = {}, False
        left = self.case.fold([*present.values()]) if present else None
        if left is not None and (self.case.rule == "recomputed" or not self.delivered or left > self.delivered[-1]):
            self.deliver(left)
        return self.delivered[before:]

    def deliver(self, combined: Any) -> None:
        if combined is not None and self.delivered[-1:] != [combined]:
            self.delivered.append(combined)


@dataclass
class AlignedModel:
    """The output of an aligned combiner."""

    case: Case
    channels: int
    waiting: dict[int, list[Any]] = field(default_factory=dict)
    gone: set[int] = field(default_factory=set)

    def step(self, what: What, channel: int, value: Any) -> list[Any]:
        if what == "update":
            self.waiting.setdefault(channel, []).append(value)
        else:
            (self.gone.discard if what == "activate" else self.gone.add)(channel)
        delivered = []
        while self.waiting and not set(range(self.channels)) - self.gone - self.waiting.keys():
            delivered.append(self.case.fold([values.pop(0) for values in self.waiting.values()]))
            self.waiting = {channel: values for channel, values in self.waiting.items() if values}
        return delivered


@st.composite
def histories(draw: st.DrawFn, cases: Sequence[Case] = CASES) -> tuple[Case, int, list[Event]]:
    case, channels = draw(st.sampled_from(cases)), draw(st.integers(1, 4))
    kinds: st.SearchStrategy[What] = st.sampled_from(("update", "update", "update", "deactivate", "activate", "end"))
    event = st.tuples(kinds, st.integers(0, channels - 1), st.sampled_from(case.values))
    return case, channels, until_the_end(draw(st.lists(event, min_size=2, max_size=20)))


def until_the_end(events: list[Event]) -> list[Event]:
    """The events without those of a channel after its end."""
    ended, left = set[int](), list[Event]()
    for event in events:
        if event[1] not in ended:
            left.append(event)
        if event[0] == "end":
            ended.add(event[1])
    return left


def apply(combiner: Combiner, event: Event) -> list[Any]:
    """The output for ``event``."""
    what, channel, value = event
    delivered = combiner.update(channel, value) if what == "update" else getattr(combiner, what)(channel)
    values = []
    while delivered is not None:
        values.append(delivered)
        delivered = combiner.following()
    return values


CODEC = Codec(TypeRegistry([Version], [__name__]))


def typed(values: list[Any]) -> list[tuple[type, Any]]:
    """The values with their types: True is not 1."""
    return [(type(value), value) for value in values]


def reloaded(combiner: Combiner, declaration: WatermarkDeclaration, channels: int) -> Combiner:
    other = new_combiner(declaration, channels)
    other.restore(CODEC.loads(CODEC.dumps(combiner.snapshot()), "The state"))
    return other


@law
@given(histories(), st.booleans())
def test_combiner_matches_the_model_at_every_step(history: tuple[Case, int, list[Event]], wait: bool) -> None:
    case, channels, events = history
    model, combiner = Model(case, wait, channels), new_combiner(case.declare(wait), channels)
    for event in events:
        assert typed(apply(combiner, event)) == typed(model.step(*event)), (case.name, event)


def test_the_heap_of_many_channels_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extremum, "_FEW", 0)
    test_combiner_matches_the_model_at_every_step()


@law
@given(histories(ALIGNABLE))
def test_aligned_combiner_delivers_once_per_round(history: tuple[Case, int, list[Event]]) -> None:
    case, channels, events = history
    model, combiner = AlignedModel(case, channels), new_combiner(case.declare(aligned=True), channels)
    for event in events:
        assert typed(apply(combiner, event)) == typed(model.step(*event)), (case.name, event)


@law
@given(histories(), st.booleans(), st.booleans())
def test_restart_between_any_two_steps_changes_nothing(
    history: tuple[Case, int, list[Event]], wait: bool, aligned: bool
) -> None:
    case, channels, events = history
    declaration = case.declare(wait, aligned and case in ALIGNABLE)
    steady = restarted = new_combiner(declaration, channels)
    for event in events:
        restarted = reloaded(restarted, declaration, channels)
        assert apply(restarted, event) == apply(steady, event), event


@law
@given(histories(), st.booleans(), st.booleans(), st.data())
def test_initially_inactive_channels_equal_deactivated_ones(
    history: tuple[Case, int, list[Event]], wait: bool, aligned: bool, data: st.DataObject
) -> None:
    case, channels, events = history
    gone = data.draw(st.sets(st.integers(0, channels - 1)))
    declaration = case.declare(wait, aligned and case in ALIGNABLE)
    told, born = new_combiner(declaration, channels), new_combiner(declaration, channels, gone)
    for channel in gone:
        told.deactivate(channel)
    assert [apply(born, event) for event in events] == [apply(told, event) for event in events]


@law
@given(histories(), st.integers(1, 5))
def test_other_channels_continue_from_the_last_result(history: tuple[Case, int, list[Event]], new: int) -> None:
    """Nothing is delivered because of the new channels alone, and their first round is as if the others had ended."""
    case, channels, events = history
    declaration = case.declare()
    before = new_combiner(declaration, channels)
    delivered = [value for event in events for value in apply(before, event)]
    ended = [channel for what, channel, _ in events if what == "end"]
    rules = rules_of("w", {"w": declaration})
    joined = rules.joined([before.snapshot()] * 2, [range(channels)] * 2, ())
    assert dict(joined[0]) == dict(before.snapshot()[0])
    after = new_combiner(declaration, new)
    after.restore(rules.replaced(before.snapshot(), ChannelChange(channels, new, ended=ended)))
    assert after.combined == (delivered[-1] if delivered else None)
    if len(ended) < channels:
        value = case.values[-1]
        found = [one for channel in range(new) for one in apply(after, ("update", channel, value))]
        expected = case.fold([value] * new)
        if expected is not None:
            assert (found or delivered)[-1] == expected, case.name


@law
@given(histories())
def test_merged_subtasks_know_no_more_than_each_of_them(history: tuple[Case, int, list[Event]]) -> None:
    """Two subtasks that have seen different parts are merged to values that neither is behind."""
    case, channels, events = history
    declaration = case.declare()
    early, late = new_combiner(declaration, channels), new_combiner(declaration, channels)
    for number, event in enumerate(events):
        apply(late, event)
        if number < len(events) // 2:
            apply(early, event)
    states = [early.snapshot(), late.snapshot()]
    merged = rules_of("w", {"w": declaration}).joined(states, [range(channels)] * 2, ())
    for channel, value in merged[0]:
        views = [dict(state[0])[channel] for state in states if channel in dict(state[0])]
        assert all(value <= view for view in views)


LAST = new_builder("w").type_str().build()


@law
@given(
    st.lists(st.tuples(st.sampled_from(("update", "deactivate", "activate")), st.integers(0, 2), st.text(max_size=1)))
)
def test_last_value_is_the_one_that_arrived_last(events: list[Event]) -> None:
    combiner = new_combiner(LAST, 3)
    sent = [value for what, _, value in events if what == "update"]
    delivered = []
    for event in events:
        delivered += apply(combiner, event)
        combiner = reloaded(combiner, LAST, 3)
    assert delivered == [value for i, value in enumerate(sent) if i == 0 or value != sent[i - 1]]


@law
@given(histories())
def test_delivery_on_arrival_answers_every_value(history: tuple[Case, int, list[Event]]) -> None:
    case, channels, events = history
    combiner = new_combiner(case.start().deliver_on_arrival().build(), channels)
    sent: dict[int, Any] = {}
    for event in events:
        if event[0] != "update":
            return
        sent.pop(event[1], None)
        sent[event[1]] = event[2]
        expected = case.fold(list(sent.values()))
        assert apply(combiner, event) == ([] if expected is None else [expected])


@law
@given(st.lists(st.integers(0, 9), max_size=20))
def test_predicate_sees_each_change_and_the_last_delivery(values: list[int]) -> None:
    declaration = new_builder("w").type_long().deliver_when(lambda new, old: old is None or abs(new - old) > 3).build()
    combiner = new_combiner(declaration, 1)
    delivered = [one for value in values for one in apply(combiner, ("update", 0, value))]
    expected: list[int] = []
    for value in values:
        if not expected or abs(value - expected[-1]) > 3:
            expected.append(value)
    assert delivered == expected


def test_every_family_of_combinations_has_a_case() -> None:
    declared = {case.declare().combination_policy.combination_function.value.partition("(")[0] for case in CASES}
    ordered = {"min", "max", "and", "or"}
    assert declared == ordered | {"sum", "count", "quantile", "at_least", "union", "intersection", "combine"}
