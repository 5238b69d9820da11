"""A model of an input and an operator: the specification that the code is compared with.

The state of both is a tuple (``frozen``), from which they are created again. Between channels any order is legal. The
model has that of the runtime, because a retried task must repeat exactly: when a round is complete, first the rest of
the current frame is processed, and then the channels that the round held back, by their number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from dsv2.runtime.exchange.control_log import END, STATUS, WATERMARK
from dsv2.watermark.event_time import EVENT_TIME, PROCESSING_TIME, USE_PROCESSING_TIME
from tests.proofs.behaviour import AGREES, Behaviour
from tests.proofs.events import TICK
from tests.proofs.rules import (
    LONG_MIN,
    Combining,
    EventTime,
    Expiring,
    Frozen,
    Rule,
    Status,
    furthest,
    is_idle,
    new_combining,
)
from tests.support import ACTIVE, ENDED, IDLE, Signal, watermark

Seen: TypeAlias = tuple[Any, ...]
"""("record", r), ("watermark", identifier, value), ("idle", bool), ("end",): what an input passes to its operator."""
CROSSING: Seen = ("crossing",)
"""The job fails, because channels are held back by different rounds."""
DISORDER: Seen = ("disorder",)
"""The job fails, because the ids of a channel do not increase."""
EXCEEDED: Seen = ("exceeded",)
"""The job fails, because a barrier has waited for too long."""
END_OF_TIME = 2**63 - 1
BEGIN_MS = 10**12
"""The wall clock at the start. No other numbers are as large and smaller than the largest time."""


def fails(seen: Sequence[Seen]) -> bool:
    """Return whether the job fails."""
    return any(one in (CROSSING, DISORDER, EXCEEDED) for one in seen)


class InputModel:
    """One input, by its channels."""

    def __init__(self, rules: Mapping[str, Rule], channels: int, state: Frozen | None = None) -> None:
        self.rules = rules
        statuses, held, combining, self.idle = state or (("active",) * channels, (None,) * channels, (), False)
        self.statuses: list[Status] = list(statuses)
        # For each channel: the identifier of the round that holds it back, and the frames behind that.
        self.held: list[tuple[str, tuple[Any, ...]] | None] = list(held)
        self._combining: dict[str, Combining] = {
            identifier: new_combining(rules[identifier], channels, frozen) for identifier, frozen in combining
        }
        self._seen: list[Seen] = []
        self._released: deque[tuple[int, tuple[Any, ...]]] = deque()

    def frozen(self) -> Frozen:
        """The state."""
        combining = tuple((identifier, one.frozen()) for identifier, one in self._combining.items())
        return tuple(self.statuses), tuple(self.held), combining, self.idle

    @property
    def ended(self) -> bool:
        """True if every channel has ended."""
        return all(status == "ended" for status in self.statuses)

    def receive(self, channel: int, elements: Sequence[Any]) -> list[Seen]:
        """``channel`` sends a frame. Returns what the operator sees."""
        self._seen = []
        self._released.append((channel, tuple(elements)))
        while self._released and CROSSING not in self._seen:
            self._process(*self._released.popleft())
        self._released.clear()
        return self._seen

    def _process(self, channel: int, elements: tuple[Any, ...]) -> None:
        if (held := self.held[channel]) is not None:
            self.held[channel] = (held[0], (*held[1], elements))
            return
        for number, element in enumerate(elements, 1):
            if not isinstance(element, Signal):
                self._seen.append(("record", element))
            elif element.kind == WATERMARK:
                if self.rules[element.identifier].aligned:
                    self._hold(channel, element, elements[number:])
                    return
                self._watermark(channel, element)
                if element.value == PROCESSING_TIME:
                    self._report_idle()
            elif element.kind == STATUS and self.statuses[channel] != "ended":
                self._become(channel, "idle" if element.value else "active")
            elif element.kind == END:
                self._become(channel, "ended")

    def _hold(self, channel: int, element: Signal, rest: tuple[Any, ...]) -> None:
        self.held[channel] = (element.identifier, (rest,))
        self._watermark(channel, element)
        waiting = {held[0] for c, held in enumerate(self.held) if held is not None and self.statuses[c] == "active"}
        if len(waiting) > 1:
            self._seen.append(CROSSING)

    def _watermark(self, channel: int, element: Signal) -> None:
        one = self._combining.get(element.identifier)
        if one is None:
            one = new_combining(self.rules[element.identifier], len(self.statuses))
            self._combining[element.identifier] = one
        self._deliver(element.identifier, one.sent(channel, element.value, self.statuses))

    def _become(self, channel: int, status: Status) -> None:
        before = self.statuses[channel]
        if before == status:
            return
        self.statuses[channel] = status
        if status == "active":
            self._report_idle()  # first: whoever is idle is not listened to
        for identifier, one in [*self._combining.items()]:
            self._deliver(identifier, one.became(channel, before, self.statuses))
        if self.ended:
            self._seen.append(("end",))
        else:
            self._report_idle()

    def _deliver(self, identifier: str, values: Sequence[Any]) -> None:
        for value in values:
            self._seen.append(("watermark", identifier, value))
            if self.rules[identifier].aligned:
                self._release(identifier)
        if isinstance(one := self._combining[identifier], Expiring):
            self._seen += [("again", identifier, value) for value in one.repeated(self.statuses)]

    def move_clock(self) -> None:
        """The clock moves."""
        for one in self._combining.values():
            if isinstance(one, Expiring):
                one.move_clock()

    def expire(self) -> list[Seen]:
        """The end of a step. Returns what the operator sees."""
        self._seen = []
        for identifier, one in self._combining.items():
            if isinstance(one, Expiring):
                self._deliver(identifier, one.expire(self.statuses))
        return self._seen

    def _release(self, identifier: str) -> None:
        released = []
        for channel, held in enumerate(self.held):
            if held is not None and held[0] == identifier:
                self.held[channel] = None
                released += [(channel, elements) for elements in held[1]]
        self._released.extendleft(reversed(released))

    def _report_idle(self) -> None:
        one = self._combining.get(EVENT_TIME)
        idle = is_idle(self.statuses, one.times if isinstance(one, EventTime) else [LONG_MIN] * len(self.statuses))
        if idle != self.idle:
            self.idle = idle
            self._seen.append(("idle", idle))


class Reaction(NamedTuple):
    """The reaction of an operator to a frame.

    Attributes:
        seen: The calls of its function: ("record", input, r), ("watermark", input, identifier, value), ("time", t),
            ("end", input), ("close",). ``CROSSING`` if the job fails.
        sent: The elements that it sends downstream.
    """

    seen: tuple[Seen, ...]
    sent: tuple[Any, ...]


class OperatorModel:
    """One operator, whose function passes on records, and watermarks unless their declaration says otherwise."""

    def __init__(
        self,
        rules: Mapping[str, Rule],
        inputs: Sequence[int],
        state: Frozen | None = None,
        *,
        forwards: bool = True,
        behaviour: Behaviour = AGREES,
    ) -> None:
        """``inputs``: the number of channels of each input. ``behaviour``: that of the function."""
        self._rules = rules
        self._forwards = forwards
        self._behaviour = behaviour
        count = len(inputs)
        of_inputs, across, statuses, times, self._time, self._sent_time, self._idle = state or (
            (None,) * count,
            (),
            ("active",) * count,
            (LONG_MIN,) * count,
            LONG_MIN,
            LONG_MIN,
            False,
        )
        self.inputs = [InputModel(rules, n, frozen) for n, frozen in zip(inputs, of_inputs, strict=True)]
        self._across: dict[str, Combining] = {
            identifier: new_combining(rules[identifier], count, frozen) for identifier, frozen in across
        }
        self._statuses: list[Status] = list(statuses)
        self._times: list[int] = list(times)
        self._seen: list[Seen] = []
        self._sent: list[Any] = []

    def frozen(self) -> Frozen:
        """The state."""
        return (
            tuple(one.frozen() for one in self.inputs),
            tuple((identifier, one.frozen()) for identifier, one in self._across.items()),
            tuple(self._statuses),
            tuple(self._times),
            self._time,
            self._sent_time,
            self._idle,
        )

    @property
    def ended(self) -> bool:
        """True if every input has ended."""
        return all(status == "ended" for status in self._statuses)

    @property
    def buffered_rounds(self) -> int:
        """The number of rounds that one input is ahead of the others, at most."""
        return max((one.buffered for one in self._across.values()), default=0)

    def receive(self, number: int, channel: int, elements: Sequence[Any]) -> Reaction:
        """``channel`` of input ``number`` sends a frame, possibly after the clock has moved."""
        self._seen, self._sent = [], []
        ticks = elements[:1] == (TICK,)
        if ticks:
            self._move_clock()
        self._process(number, self.inputs[number].receive(channel, elements[ticks:]))
        if ticks:
            self._expire()
        return Reaction(tuple(self._seen), tuple(self._sent))

    def _move_clock(self) -> None:
        for one in self.inputs:
            one.move_clock()
        for across in self._across.values():
            if isinstance(across, Expiring):
                across.move_clock()

    def _expire(self) -> None:
        for number, one in enumerate(self.inputs):
            self._process(number, one.expire())
        for identifier, across in self._across.items():
            if isinstance(across, Expiring):
                self._send_combined(identifier, across.expire(self._statuses))

    def _process(self, number: int, seen: Sequence[Seen]) -> None:
        for what, *rest in seen:
            match what:
                case "again":
                    self._forward(number, *rest)
                case "record":
                    self._seen.append(("record", number, *rest))
                    self._sent += self._behaviour.for_record(*rest)
                case "watermark":
                    self._on_watermark(number, *rest)
                case "idle":
                    self._become(number, "idle" if rest[0] else "active")
                case "end":
                    self._become(number, "ended")
                case _:
                    self._seen.append(CROSSING)

    def _on_watermark(self, number: int, identifier: str, value: Any) -> None:
        if identifier == EVENT_TIME:
            self._times[number] = max(self._times[number], value)
            self._advance()
            if value == PROCESSING_TIME:
                self._report_idle()
            return
        if self._behaviour.hears:
            self._seen.append(("watermark", number, identifier, value))
        self._sent += self._behaviour.for_watermark(value)
        if value not in self._behaviour.polled:
            self._forward(number, identifier, value)

    def _forward(self, number: int, identifier: str, value: Any) -> None:
        if not self._forwards:
            return
        if len(self.inputs) == 1 or not self._rules[identifier].across:
            self._sent.append(watermark(value, identifier))
            return
        if identifier not in self._across:
            self._across[identifier] = new_combining(self._rules[identifier], len(self.inputs))
        self._send_combined(identifier, self._across[identifier].sent(number, value, self._statuses))

    def _become(self, number: int, status: Status) -> None:
        before, self._statuses[number] = self._statuses[number], status
        if status == "ended":
            self._end(number, before)
            return
        self._combine(number, before)
        if status == "active":
            self._report_idle()
        self._advance()
        self._report_idle()

    def _end(self, number: int, before: Status) -> None:
        self._advance()
        self._seen.append(("end", number))
        self._combine(number, before)
        if self.ended:
            self._sent.append(ENDED)
            self._seen.append(("close",))
        else:
            self._report_idle()

    def _combine(self, number: int, before: Status) -> None:
        for identifier, one in self._across.items():
            self._send_combined(identifier, one.became(number, before, self._statuses))

    def _send_combined(self, identifier: str, values: Sequence[Any]) -> None:
        if isinstance(one := self._across[identifier], Expiring):
            values = [*values, *one.repeated(self._statuses)]
        self._sent += [watermark(value, identifier) for value in values]

    def _advance(self) -> None:
        """Event time is the least of the active inputs, that of the furthest if none is, and never decreases."""
        live = [time for time, status in zip(self._times, self._statuses, strict=True) if status != "ended"]
        if live and set(live) == {PROCESSING_TIME}:
            self._follow_clock()
            return
        active = [
            time
            for time, status in zip(self._times, self._statuses, strict=True)
            if status == "active" and time != PROCESSING_TIME
        ]
        time = END_OF_TIME if self.ended else min(active) if active else furthest(self._times)
        if time <= self._time:
            return
        self._time = time
        self._seen.append(("time", time))
        if not self.ended:
            self._send_time(time)

    def _follow_clock(self) -> None:
        """Event time is the wall clock, which does not move in these cases."""
        if self._sent_time == PROCESSING_TIME:
            return
        self._time, self._sent_time = BEGIN_MS, PROCESSING_TIME
        self._seen.append(("time", BEGIN_MS))
        self._sent.append(watermark(True, USE_PROCESSING_TIME))

    def _send_time(self, time: int) -> None:
        if time <= self._sent_time:
            return
        self._sent_time = time
        sent = watermark(time, EVENT_TIME)
        # Receivers do not listen to the event time of an idle sender.
        self._sent += [ACTIVE, sent, IDLE] if self._idle else [sent]

    def _report_idle(self) -> None:
        idle = is_idle(self._statuses, self._times)
        if idle != self._idle:
            self._idle = idle
            self._sent.append(IDLE if idle else ACTIVE)
