"""A join of two inputs with two channels each, driven by hand, and what may happen to it."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction
from dsv2.testing import EndOfInput, IdleStatus, ManualClock, StampedRecord, TwoInputNonBroadcastHarness
from dsv2.watermark import LongWatermark
from dsv2.watermark.event_time import LONG_MIN
from tests.oracles.joins import Row

__all__ = ("CHANNELS", "Event", "JoinDriver", "event_time", "histories", "pair")

CHANNELS = 4  # the first two are of the left side


class Event(NamedTuple):
    """A row or a signal comes on a channel; before it the join may be put into bytes."""

    channel: int
    element: Row | LongWatermark | IdleStatus | EndOfInput
    restart: bool = False

    @property
    def side(self) -> int:
        """0: left, 1: right."""
        return self.channel // 2


def pair(left: Row | None, right: Row | None, output: Any, ctx: Any) -> None:
    """The join function of all these tests."""
    output.collect((left, right))


def key_of(row: Row) -> Hashable:
    return row.key


def event_time(timestamp: int) -> LongWatermark:
    """The watermark of event time."""
    return EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION.new_watermark(timestamp)


class JoinDriver:
    """Runs ``function``, and tells event by event what comes out."""

    def __init__(self, function: TwoInputNonBroadcastStreamProcessFunction[Row, Row, Any], clock_ms: int = 0) -> None:
        self.harness = TwoInputNonBroadcastHarness(
            function,
            first_key=key_of,
            second_key=key_of,
            channels=2,
            declarations=[EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION],
            clock=ManualClock(clock_ms),
        )
        self._forwarded = LONG_MIN

    def take(self, event: Event) -> list[tuple[Any, Any, int]]:
        """The results of ``event``, each with its timestamp and with the event time that downstream knows by then."""
        harness = self.harness
        if event.restart:
            harness.restart()
        side = (harness.first_input, harness.second_input)[event.side]
        element: Any = event.element
        if isinstance(element, Row):
            element = StampedRecord(element, element.timestamp)
        side.push_all([element], channel=event.channel % 2)
        results: list[tuple[Any, Any, int]] = []
        for emitted in harness.output.elements:
            if isinstance(emitted, StampedRecord):
                results.append((emitted.record, emitted.timestamp, self._forwarded))
            elif isinstance(emitted, LongWatermark):
                self._forwarded = emitted.value
        harness.output.clear()
        return results

    @property
    def event_time(self) -> int:
        """What the join takes for the time."""
        return self.harness._task._event_time.current

    def state_size(self) -> int:
        """Bytes of the whole state."""
        return len(self.harness.snapshot())

    def counter(self, name: str) -> int:
        """A metric of the function."""
        return self.harness.progress.counters.get(name, 0)


EVERYWHERE = range(CHANNELS)


def history(seed: int, size: int) -> list[Event]:
    """``size`` elements: rows out of order, watermarks, channels that go idle and come back; then the ends."""
    choice = random.Random(seed)
    drawn: list[tuple[Sequence[int], Any]] = []
    for number in range(size):
        kind, time, channel = choice.random(), choice.randrange(15), choice.choice(EVERYWHERE)
        if kind < 0.7:
            drawn.append(([channel], Row(choice.choice("ab"), number, time)))
        elif kind < 0.9:
            drawn.append((EVERYWHERE if kind < 0.8 else [channel], event_time(time // 2)))
        else:
            drawn.append(([channel], IdleStatus(choice.random() < 0.5)))
    ends: list[tuple[Sequence[int], Any]] = [
        ([channel], EndOfInput()) for channel in choice.sample(EVERYWHERE, CHANNELS)
    ]
    every = [(channel, element) for where, element in [*drawn, *ends] for channel in where]
    return [Event(channel, element, choice.random() < 0.3) for channel, element in every]


def histories(count: int) -> Iterator[list[Event]]:
    """Short ones first."""
    return (history(seed, 1 + seed * 40 // count) for seed in range(count))
