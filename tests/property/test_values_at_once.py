"""Watermarks that a channel sends with nothing between them: all are processed as if each had arrived on its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from dsv2.runtime.exchange import gate
from dsv2.watermark import new_builder
from dsv2.watermark.combiner import Combiner, new_combiner
from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX, LONG_MIN, PROCESSING_TIME, EventTimeCombiner
from tests.profiles import examples
from tests.property.test_combiner_laws import ORDERED, Case, Event, histories, until_the_end
from tests.support import ACTIVE, IDLE, Signal, watermark
from tests.unit.runtime.exchange.test_gate import Gate

law = examples(150)


def run(combiner: Combiner, channel: int, values: Sequence[int], *, at_once: bool) -> list[int]:
    """The output for ``values``."""
    passed = combiner.effective(channel, values) if at_once else iter(values)
    return [delivered for value in passed for delivered in delivered_by(combiner, combiner.update(channel, value))]


def delivered_by(combiner: Combiner, delivered: int | None) -> Iterator[int]:
    while delivered is not None:
        yield delivered
        delivered = combiner.following()


def step(combiner: Combiner, event: Event, more: Sequence[int], *, at_once: bool) -> list[int]:
    what, channel, value = event
    if what == "update":
        return run(combiner, channel, [value, *more], at_once=at_once)
    return [*delivered_by(combiner, getattr(combiner, what)(channel))]


@law
@given(histories(ORDERED), st.booleans(), st.booleans(), st.data())
def test_they_leave_what_single_ones_leave(
    history: tuple[Case, int, list[Event]], wait: bool, aligned: bool, data: st.DataObject
) -> None:
    case, channels, events = history
    declaration = case.declare(wait or aligned, aligned)
    single, together = new_combiner(declaration, channels), new_combiner(declaration, channels)
    for event in events:
        more = data.draw(st.lists(st.sampled_from(case.values), max_size=5))
        assert step(together, event, more, at_once=True) == step(single, event, more, at_once=False), event
        assert repr(together.snapshot()) == repr(single.snapshot()), event


@law
@given(histories(ORDERED), st.booleans(), st.data())
def test_any_state_will_do(history: tuple[Case, int, list[Event]], wait: bool, data: st.DataObject) -> None:
    """Also those that no history of these channels leads to, but a change of parallelism."""
    case, channels, events = history
    some = st.sampled_from(case.values)
    subset = st.sets(st.integers(0, channels - 1)).map(lambda found: tuple(sorted(found)))
    values = data.draw(st.dictionaries(st.integers(0, channels - 1), some))
    pending = tuple(channel for channel in data.draw(subset) if channel in values)
    state = (
        tuple(sorted(values.items())),
        data.draw(subset),
        pending,
        tuple(sorted(data.draw(st.lists(some, max_size=2)))),
        bool(pending) or data.draw(st.booleans()),
        data.draw(st.none() | some),
    )
    single, together = (new_combiner(case.declare(wait), channels) for _ in range(2))
    single.restore(state)
    together.restore(state)
    for event in events:
        more = data.draw(st.lists(some, max_size=5))
        assert step(together, event, more, at_once=True) == step(single, event, more, at_once=False), event
        assert repr(together.snapshot()) == repr(single.snapshot()), event


TIMES = (LONG_MIN, -1, 0, 1, 2, 3, LONG_MAX)


@law
@given(st.integers(1, 4), st.data())
def test_event_time_of_single_ones(channels: int, data: st.DataObject) -> None:
    kinds = st.sampled_from(("update", "update", "update", "deactivate", "activate", "end"))
    event = st.tuples(kinds, st.integers(0, channels - 1), st.sampled_from((*TIMES, PROCESSING_TIME)))
    single, together = EventTimeCombiner(channels), EventTimeCombiner(channels)
    for one in until_the_end(data.draw(st.lists(event, min_size=2, max_size=20))):  # type: ignore[arg-type]
        more = [] if one[2] == PROCESSING_TIME else data.draw(st.lists(st.sampled_from(TIMES), max_size=5))
        assert step(together, one, more, at_once=True) == step(single, one, more, at_once=False), one
        assert together.snapshot() == single.snapshot(), one


SIGNALS = (
    *(watermark(value, identifier) for value in (1, 2, 3) for identifier in ("w", "all", "aligned")),
    *(watermark(value, EVENT_TIME) for value in (10, 20, 30)),
    IDLE,
    ACTIVE,
)
ELEMENTS: st.SearchStrategy[int | Signal] = st.integers(0, 9) | st.sampled_from(SIGNALS)


@law
@given(st.integers(1, 3), st.lists(st.tuples(st.integers(0, 2), st.lists(ELEMENTS, max_size=8)), max_size=8))
def test_an_input_receives_what_single_ones_cause(channels: int, frames: list[tuple[int, list[int | Signal]]]) -> None:
    together, single = Gate(channels), Gate(channels)
    for number, sequence in frames:
        together.send(number % channels, *sequence)
        with patch.object(gate, "_end_of_run", lambda controls, index: index + 1):
            single.send(number % channels, *sequence)
        assert together.new_output() == single.new_output()
        assert repr(together.gate.snapshot()) == repr(single.gate.snapshot())


def test_values_that_another_channel_outdoes_cost_nothing() -> None:
    declaration = new_builder("w").type_long().combine_function_max().build()
    combiner = new_combiner(declaration, 2)
    combiner.update(0, 100)
    assert [*combiner.effective(1, range(50))] == [49]
    assert run(combiner, 1, range(50), at_once=True) == []
    assert run(combiner, 1, [*range(98, 103)], at_once=True) == [101, 102]
