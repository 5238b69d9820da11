"""A model of an operator with barriers: the specification that the code is compared with.

A round is complete when every active channel of all inputs is blocked. Its id is the least one that blocks a channel.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from dsv2.runtime.exchange.barrier_rounds import BARRIERS_WITHOUT_ALL, LATE_BARRIERS, LATE_BEHIND_BARRIERS
from dsv2.runtime.exchange.control_log import STATUS, WATERMARK
from tests.proofs.events import TICK
from tests.proofs.model import DISORDER, END_OF_TIME, EXCEEDED, Reaction, Seen
from tests.proofs.rules import Frozen, Status
from tests.support import ACTIVE, ENDED, IDLE, Signal, watermark

BARRIER = "part"
"""The identifier of the barrier."""


class Limits(NamedTuple):
    """Limits for a barrier that waits. ``ticks``: moves of the clock. ``records``: held ones. None: no limit."""

    ticks: int | None = None
    records: int | None = None
    proceeds: bool = False


class _FailureError(Exception):
    def __init__(self, seen: Seen) -> None:
        super().__init__(seen)
        self.seen = seen


class _Channel:
    """Attributes:
    last: The last id that was processed.
    blocked: The id that blocks the channel, or None.
    age: How often the clock has moved since.
    held: The frames behind that id.
    behind: The number of records since a barrier was delivered without this channel; None: it was not.
    """

    def __init__(self, number: int, state: Frozen = ("active", None, None, 0, (), None)) -> None:
        self.number = number
        self.status: Status
        self.status, self.last, self.blocked, self.age, self.held, self.behind = state

    def frozen(self) -> Frozen:
        return self.status, self.last, self.blocked, self.age, self.held, self.behind


class BarrierModel:
    """One operator, whose function passes on records and barriers."""

    def __init__(self, inputs: Sequence[int], limits: Limits, state: Frozen | None = None) -> None:
        """``inputs``: the number of channels of each input."""
        of_channels, self._completed, self._idle_inputs, self._idle = state or (
            None,
            None,
            (False,) * len(inputs),
            False,
        )
        numbers = range(sum(inputs))
        self._channels = [_Channel(n, *([of_channels[n]] if of_channels else [])) for n in numbers]
        members = iter(self._channels)
        self._inputs = [[next(members) for _ in range(count)] for count in inputs]
        self._limits = limits
        self._released = [deque[tuple[_Channel, tuple[Any, ...]]]() for _ in inputs]
        self._seen: list[Seen] = []
        self._sent: list[Any] = []
        self._counts = Counter[str]()

    def frozen(self) -> Frozen:
        """The state."""
        return tuple(one.frozen() for one in self._channels), self._completed, self._idle_inputs, self._idle

    @property
    def excess(self) -> int:
        """The number of records that a channel has sent since a barrier was delivered without it, at most."""
        return max(one.behind or 0 for one in self._channels)

    def receive(self, channel: int, elements: Sequence[Any]) -> Reaction:
        """Process a frame of ``channel``, numbered over all inputs."""
        try:
            if elements[:1] == (TICK,):
                elements = elements[1:]
                self._move_clock()
            one = self._channels[channel]
            self._released[self._input(one)].append((one, tuple(elements)))
            self._process_released(self._input(one))
        except _FailureError as failure:
            return Reaction((failure.seen,), ())
        counted = [("count", name, amount) for name, amount in sorted(self._counts.items())]
        return Reaction((*self._seen, *counted), tuple(self._sent))

    def _input(self, channel: _Channel) -> int:
        return next(number for number, members in enumerate(self._inputs) if channel in members)

    def _move_clock(self) -> None:
        for one in self._channels:
            one.age += one.blocked is not None
        while self._limits.ticks is not None and max(one.age for one in self._channels) >= self._limits.ticks:
            self._proceed()
            self._process_released(0)

    def _process_released(self, first: int) -> None:
        """Process what was released: that of one input first, then input by input."""
        numbers = [first]
        while any(self._released):
            for number in numbers:
                while self._released[number]:
                    self._process(*self._released[number].popleft())
            numbers = [*range(len(self._inputs))]

    def _process(self, channel: _Channel, elements: tuple[Any, ...]) -> None:
        if channel.blocked is not None:
            channel.held = (*channel.held, elements)
            self._check_held()
            return
        for number, element in enumerate(elements, 1):
            if not isinstance(element, Signal):
                self._seen.append(("record", self._input(channel), element))
                self._sent.append(element)
                if channel.behind is not None:
                    channel.behind += 1
            elif element.kind == WATERMARK:
                self._barrier(channel, element.value, elements[number:])
                return
            elif element.kind == STATUS:
                self._become(channel, "idle" if element.value else "active")
            else:
                self._become(channel, "ended")

    def _barrier(self, channel: _Channel, value: int, rest: tuple[Any, ...]) -> None:
        if channel.last is not None and value <= channel.last:
            raise _FailureError(DISORDER)
        records, channel.last, channel.behind = channel.behind or 0, value, None
        if self._completed is not None and value <= self._completed:
            channel.behind = 0 if value < self._completed else None
            self._count(LATE_BARRIERS, 1)
            self._count(LATE_BEHIND_BARRIERS, records)
            self._released[self._input(channel)].appendleft((channel, rest))
            return
        channel.blocked, channel.age, channel.held = value, 0, (rest,)
        self._complete_rounds()
        self._check_held()

    def _complete_rounds(self) -> None:
        while all(one.blocked is not None for one in self._channels if one.status == "active"):
            if not self._blocked():
                return
            self._deliver()

    def _blocked(self) -> list[_Channel]:
        return [one for one in self._channels if one.blocked is not None]

    def _deliver(self) -> None:
        value = self._completed = min(one.blocked for one in self._blocked())
        self._seen.append(("watermark", 0, BARRIER, value))
        self._sent.append(watermark(value, BARRIER))
        for number, members in enumerate(self._inputs):
            released = []
            for one in members:
                if one.blocked == value:
                    released += [(one, elements) for elements in one.held]
                    one.blocked, one.age, one.held = None, 0, ()
                is_behind = one.last is None or one.last < value
                if one.blocked is None and one.behind is None and is_behind and one.status != "ended":
                    one.behind = 0
            self._released[number].extendleft(reversed(released))

    def _proceed(self) -> None:
        if not self._limits.proceeds:
            raise _FailureError(EXCEEDED)
        self._count(BARRIERS_WITHOUT_ALL, 1)
        self._deliver()

    def _check_held(self) -> None:
        def held() -> int:
            frames = (elements for one in self._blocked() for elements in one.held)
            return sum(not isinstance(element, Signal) for elements in frames for element in elements)

        while self._limits.records is not None and held() > self._limits.records:
            self._proceed()

    def _count(self, name: str, amount: int) -> None:
        self._counts.update({name: amount} if amount else {})

    def _become(self, channel: _Channel, status: Status) -> None:
        if status == channel.status:
            return
        channel.status = status
        number = self._input(channel)
        if status == "active":
            self._report_idle(number)  # first: whoever is idle is not listened to
        elif status == "ended":
            channel.behind = None
        self._complete_rounds()
        statuses = {one.status for one in self._inputs[number]}
        if statuses == {"ended"}:
            self._end(number)
        else:
            self._report_idle(number)

    def _end(self, number: int) -> None:
        is_last = all(one.status == "ended" for one in self._channels)
        if is_last:
            self._seen.append(("time", END_OF_TIME))
        self._seen.append(("end", number))
        if is_last:
            self._sent.append(ENDED)
            self._seen.append(("close",))
        else:
            self._report_idle(number)

    def _report_idle(self, number: int) -> None:
        statuses = [{one.status for one in members} for members in self._inputs]
        self._idle_inputs = tuple("active" not in those and "idle" in those for those in statuses)
        idle = any(self._idle_inputs) and not any("active" in those for those in statuses)
        if idle != self._idle:
            self._idle = idle
            self._sent.append(IDLE if idle else ACTIVE)
