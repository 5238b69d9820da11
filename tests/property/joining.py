"""A join of two inputs with two channels each, driven by hand, and what may happen to it."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction
from dsv2.runtime.frames import WATERMARK
from dsv2.sinks import CollectSink
from dsv2.watermark.event_time import EVENT_TIME, LONG_MIN
from tests.oracles.joins import Row
from tests.support import ACTIVE, ENDED, IDLE, Driver, Signal, local_environment, packed, unpacked, watermark

__all__ = ("CHANNELS", "Event", "JoinDriver", "histories", "pair")

CHANNELS = 4  # the first two are of the left side


class Event(NamedTuple):
    """A row or a signal comes on a channel; before it the join may be put into bytes."""

    channel: int
    element: Row | Signal
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


def timestamp_of(row: Row) -> int:
    return row.timestamp


class JoinDriver:
    """Runs ``function``, and tells event by event what comes out."""

    def __init__(self, function: TwoInputNonBroadcastStreamProcessFunction[Row, Row, Any]) -> None:
        env = local_environment()
        generator = EventTimeExtension.new_watermark_generator_builder(timestamp_of).build_as_process_function()
        rows = env.from_collection(list[Row]()).with_parallelism(2)
        rows = rows.process(generator).with_parallelism(2)  # declares event time
        joined = rows.key_by(key_of).connect_and_process(rows.key_by(key_of), function).with_uid("f")
        joined.to_sink(CollectSink()).with_uid("out")
        self._driver = Driver(env.build_plan(), "f").open()
        self._driver.frames.clear()
        self.forwarded = LONG_MIN

    def take(self, event: Event) -> list[tuple[Any, int, int]]:
        """The results of ``event``, each with its timestamp and with the event time that downstream knows by then."""
        if event.restart:
            self._driver.restart()
        records, controls = packed([event.element])
        stamps: list[int | None] = [record.timestamp for record in records]
        self._driver.subtask.receive(event.channel, records, controls, stamps or None)
        self._driver.subtask.flush()
        elements: list[Any] = []
        for frame in self._driver.frames:
            stamped = list(zip(frame.records, frame.timestamps or [None] * len(frame.records), strict=True))
            elements += unpacked(stamped, frame.controls)
        self._driver.frames.clear()
        return [(*element, self.forwarded) for element in elements if not self._is_signal(element)]

    def _is_signal(self, element: Any) -> bool:
        if not isinstance(element, Signal):
            return False
        if (element.kind, element.identifier) == (WATERMARK, EVENT_TIME):
            self.forwarded = element.value
        return True

    @property
    def event_time(self) -> int:
        """What the join takes for the time."""
        return self._driver.subtask._head._event_time.current

    def state_size(self) -> int:
        """Bytes of the whole state."""
        return len(self._driver.subtask.snapshot())

    @property
    def ended(self) -> bool:
        """Whether the function is closed."""
        return self._driver.subtask.ended

    def counter(self, name: str) -> int:
        """A metric of the function."""
        return int(self._driver.progress("f")["counters"].get(name, 0))


EVERYWHERE = range(CHANNELS)


def history(seed: int, size: int) -> list[Event]:
    """``size`` elements: rows out of order, watermarks, channels that go idle and come back; then the ends."""
    choice = random.Random(seed)
    drawn: list[tuple[Sequence[int], Row | Signal]] = []
    for number in range(size):
        kind, time, channel = choice.random(), choice.randrange(15), choice.choice(EVERYWHERE)
        if kind < 0.7:
            drawn.append(([channel], Row(choice.choice("ab"), number, time)))
        elif kind < 0.9:
            drawn.append((EVERYWHERE if kind < 0.8 else [channel], watermark(time // 2, EVENT_TIME)))
        else:
            drawn.append(([channel], choice.choice([IDLE, ACTIVE])))
    ends = [([channel], ENDED) for channel in choice.sample(EVERYWHERE, CHANNELS)]
    every = [(channel, element) for where, element in [*drawn, *ends] for channel in where]
    return [Event(channel, element, choice.random() < 0.3) for channel, element in every]


def histories(count: int) -> Iterator[list[Event]]:
    """Short ones first."""
    return (history(seed, 1 + seed * 40 // count) for seed in range(count))
