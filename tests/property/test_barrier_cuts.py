"""A barrier is a consistent cut: what an operator receives between two barriers is what each channel sent between them.

A naive model decides for each record before which barrier it must be received, and after which.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from tests.barriers import Inputs, barrier
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


@given(histories())
def test_records_between_two_barriers_are_those_between_them_on_each_channel(history: History) -> None:
    inputs = Inputs(*history.channels)
    for number, channel, sequence in history.frames:
        inputs.send(number, channel, *sequence)
    barriers = [value for kind, value in _pairs(inputs) if kind == DAY]
    sent = {int(e.value) for *_, frame in history.frames for e in frame if isinstance(e, Signal) and e is not ENDED}
    assert barriers == sorted(sent), "each id is delivered once, in order"
    place_of = {value: place for place, value in enumerate(inputs.received)}
    expected = parts(history)
    assert expected.keys() == {e for e in inputs.received if len(e) == 4}
    for record, (before, after) in expected.items():
        assert before is None or place_of[DAY, before] < place_of[record]
        assert after is None or place_of[record] < place_of[DAY, after]
    assert [kind for kind, _ in _pairs(inputs)].count("end") == len(history.channels)
    assert sum(gate.held_records for gate in inputs.gates) == 0
    assert not inputs.counts


@given(histories(), st.integers(0, 400))
def test_restart_between_any_two_frames_changes_nothing(history: History, step: int) -> None:
    steady, restarted = Inputs(*history.channels), Inputs(*history.channels)
    for number, channel, sequence in history.frames:
        bounded = [
            Signal(e.kind, "bounded", e.value) if isinstance(e, Signal) and e is not ENDED else e for e in sequence
        ]
        for inputs in (steady, restarted):
            inputs.pass_time(inputs.now_ms + step)
            inputs.send(number, channel, *bounded)
        restarted.restart()
        assert restarted.rounds.next_deadline() == steady.rounds.next_deadline()
    assert restarted.received == steady.received
    assert restarted.counts == steady.counts


def _pairs(inputs: Inputs) -> list[tuple[Any, Any]]:
    return [e for e in inputs.received if len(e) == 2]
