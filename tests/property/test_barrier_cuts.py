"""A barrier is a consistent cut: what an operator receives between two barriers is what each channel sent between them.

A naive model decides for each record before which barrier it must be received, and after which.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dsv2.graph import Exchange
from dsv2.runtime.rescale.change import InputChange, Senders
from dsv2.runtime.rescale.gates import rescaled_gate
from tests.barriers import DECLARATIONS, Inputs, barrier
from tests.support import ENDED, Signal

DAY = "day"


class History(NamedTuple):
    """Frames of the channels of some inputs, as (input, channel, sequence). Each channel ends."""

    channels: tuple[int, ...]
    frames: list[tuple[int, int, Sequence[Any]]]


@st.composite
def histories(draw: st.DrawFn) -> History:
    channels = tuple(draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)))
    queues = []
    for number, count in enumerate(channels):
        for channel in range(count):
            ids = sorted(draw(st.sets(st.integers(0, 6))))
            elements: list[Any] = []
            for place, value in enumerate([*ids, None]):
                elements += [(number, channel, place, i) for i in range(draw(st.integers(0, 3)))]
                elements.append(ENDED if value is None else barrier(value))
            queues.append((number, channel, elements))
    frames: list[tuple[int, int, Sequence[Any]]] = []
    while queues:
        number, channel, elements = draw(st.sampled_from(queues))
        size = draw(st.integers(1, 5))
        frames.append((number, channel, elements[:size]))
        del elements[:size]
        queues = [queue for queue in queues if queue[2]]
    return History(channels, frames)


def parts(history: History) -> dict[Any, tuple[int | None, int | None]]:
    """For each record the id of the barrier before it on its channel, and of the one after it."""
    found: dict[Any, tuple[int | None, int | None]] = {}
    for number, count in enumerate(history.channels):
        for channel in range(count):
            sent = [e for n, c, frame in history.frames if (n, c) == (number, channel) for e in frame]
            before: int | None = None
            waiting: list[Any] = []
            for element in sent:
                if not isinstance(element, Signal):
                    waiting.append(element)
                    continue
                after = None if element is ENDED else int(element.value)
                found.update(dict.fromkeys(waiting, (before, after)))
                before, waiting = after, []
    return found


def _pairs(inputs: Inputs) -> list[tuple[Any, Any]]:
    return [e for e in inputs.received if len(e) == 2]


def rescaled(old: Sequence[Inputs], history: History, subtasks: int) -> list[Inputs]:
    """New subtasks of an operator whose senders stay. Records go to the subtask with their last number."""
    changes = [InputChange(Senders.SAME, Exchange.HASH, Exchange.HASH, count, count) for count in history.channels]
    created = [Inputs(*history.channels) for _ in range(subtasks)]
    for subtask, one in enumerate(created):
        for number, (gate, change) in enumerate(zip(one.gates, changes, strict=True)):
            states = [copy.deepcopy(before.gates[number].snapshot()) for before in old]
            state = rescaled_gate(states, change, subtask, DECLARATIONS, lambda record, _: record[3] % subtasks)
            gate.restore(state)
        for gate in one.gates:
            gate.settle()
    return created


@given(histories(), st.data())
def test_cuts_stay_consistent_if_the_parallelism_changes(history: History, data: st.DataObject) -> None:
    """At one point, in each of the new subtasks: with what the old subtasks had received before."""
    before, after = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    cut = data.draw(st.integers(0, len(history.frames)))
    subtasks = [Inputs(*history.channels) for _ in range(before)]
    received: list[Any] = []
    for place, (number, channel, sequence) in enumerate(history.frames):
        if place == cut:
            received = [e for one in subtasks for e in one.received if len(e) == 4]
            barriers = _pairs(subtasks[0])
            assert all(_pairs(one) == barriers for one in subtasks)
            subtasks = rescaled(subtasks, history, after)
            for one in subtasks:
                assert not one.received, "nothing becomes true"
                one.received += barriers
        for subtask, one in enumerate(subtasks):
            own = [e for e in sequence if isinstance(e, Signal) or e[3] % len(subtasks) == subtask]
            one.send(number, channel, *own)
    expected = parts(history)
    sent = {int(e.value) for *_, frame in history.frames for e in frame if isinstance(e, Signal) and e is not ENDED}
    later = [e for one in subtasks for e in one.received if len(e) == 4]
    assert sorted([*received, *later]) == sorted(expected)
    for one in subtasks:
        place_of = {value: place for place, value in enumerate(one.received)}
        for record in (e for e in one.received if len(e) == 4):
            earlier, following = expected[record]
            assert earlier is None or place_of[DAY, earlier] < place_of[record]
            assert following is None or place_of[record] < place_of[DAY, following]
        ids = [value for kind, value in _pairs(one) if kind == DAY]
        assert ids == sorted(sent), "each id is delivered once, in order"
        assert not one.counts
        assert sum(gate.held_records for gate in one.gates) == 0
