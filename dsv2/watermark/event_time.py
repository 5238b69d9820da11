"""Combination of event time over the channels of an input and over the inputs of an operator.

Event time never decreases. An idle channel or input does not hold it back, and a channel that becomes active again
counts only after it has caught up. Once all are idle, event time is that of the furthest, in whichever order they
became idle (``StatusWatermarkValve`` and ``CombinedWatermarkStatus`` of Flink's main branch; FLINK-5017).

A sender of the flag ``useProcessingTime`` (FLIP-326) switches its event time to the wall clock, which is represented as
``PROCESSING_TIME``. From then on it neither holds the others back nor keeps them active: if all others are idle, so is
the combination (``all_idle``). The combination switches when all channels have. An idle channel that has not is waited
for, because it may still send event time; an ended one is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from dsv2.errors import ContractError
from dsv2.watermark.extremum import Extremum

RESERVED: Final = "BUILTIN_API_"
"""The prefix of identifiers that programs cannot declare."""
EVENT_TIME: Final = "BUILTIN_API_EVENT_TIME"
IDLE_STATUS: Final = "BUILTIN_API_EVENT_TIME_IDLE"
USE_PROCESSING_TIME: Final = "BUILTIN_API_EVENT_TIME_USE_PROCESSING_TIME"
LONG_MIN: Final = -(1 << 63)
"""Event time before the first watermark, in ms."""
LONG_MAX: Final = (1 << 63) - 1
"""Event time after the end of all input, in ms."""
PROCESSING_TIME: Final = LONG_MAX + 1
"""Represents event time that follows the wall clock. No watermark has this value."""


class EventTimeCombiner:
    """Combines event time over the channels of one input. A gate uses it like the combiners of other watermarks."""

    aligned = False

    def __init__(self, channels: int, idle: Iterable[int] = (), ended: Iterable[int] = ()) -> None:
        self._times = [LONG_MIN] * channels
        self._idle = set(idle)
        self._ended = set(ended)
        self._behind: set[int] = set()  # active again, but has not caught up
        self._by_clock: set[int] = set()
        self._counted = self._counted_times()
        self._last = LONG_MIN

    @property
    def by_clock(self) -> set[int]:
        """The channels at ``PROCESSING_TIME`` that have not ended."""
        return self._by_clock

    def update(self, channel: int, value: int) -> int | None:
        """``channel`` has reached ``value``. Returns the new event time of the input if it has advanced.

        Both may be ``PROCESSING_TIME``.
        """
        if value == PROCESSING_TIME:
            self._idle.discard(channel)
            self._by_clock.add(channel)
        if channel in self._idle or value <= self._times[channel]:
            return None
        self._times[channel] = value
        if value >= self._last:
            self._behind.discard(channel)
        return self._changed(channel)

    def effective(self, channel: int, values: Sequence[int]) -> Iterator[int]:
        """Yield those of ``values`` that must be passed to ``update``. See ``WatermarkCombiner.effective``.

        While another channel holds event time back, only the greatest one counts.
        """
        for index, value in enumerate(values):
            if value <= self._times[channel]:
                continue
            if self._is_held_back_without(channel):
                yield max(values[index:])
                return
            yield value

    def _is_held_back_without(self, channel: int) -> bool:
        return channel in self._counted and self._counted.value() < self._times[channel]

    def deactivate(self, channel: int) -> int | None:
        """``channel`` became idle: the others advance without it."""
        if self._times[channel] == PROCESSING_TIME:
            return None
        self._idle.add(channel)
        self._behind.discard(channel)
        return self._changed(channel)

    def activate(self, channel: int) -> int | None:
        """An idle ``channel`` became active. It counts once it has caught up with the others."""
        self._idle.discard(channel)
        if self._times[channel] < self._last:
            self._behind.add(channel)
        return self._changed(channel)

    def end(self, channel: int) -> int | None:
        """``channel`` has ended: the others advance without it."""
        for channels in (self._idle, self._behind, self._by_clock):
            channels.discard(channel)
        self._ended.add(channel)
        return self._changed(channel)

    def following(self) -> None:
        """For the interface of combiners. There is never more than one new event time."""

    @property
    def combined(self) -> int | None:
        """The event time of the input, possibly ``PROCESSING_TIME``. None: there is none yet."""
        return None if self._last == LONG_MIN else self._last

    def sent(self) -> Mapping[int, int]:
        """The event time of the channels that have one."""
        return {channel: time for channel, time in enumerate(self._times) if time != LONG_MIN}

    def _changed(self, channel: int) -> int | None:
        if channel in self._idle or channel in self._ended or channel in self._behind or channel in self._by_clock:
            self._counted.discard(channel)
        else:
            self._counted.put(channel, self._times[channel])
        if self._counted:
            return self._moved(self._counted.value())
        if self._by_clock and len(self._by_clock) + len(self._ended) == len(self._times):
            return self._moved(PROCESSING_TIME)
        return None if self._behind else self._moved(_furthest(self._times))

    def _counted_times(self) -> Extremum[int]:
        ignored = self._idle | self._ended | self._behind | self._by_clock
        times = ((channel, time) for channel, time in enumerate(self._times) if channel not in ignored)
        return Extremum(greatest=False, values=times)

    def _moved(self, time: int) -> int | None:
        if time <= self._last:
            return None
        self._last = time
        return time

    def snapshot(self) -> tuple[Any, ...]:
        """The state as built-in values, for ``restore``."""
        ignored = (self._idle, self._ended, self._behind)
        return tuple(self._times), *(tuple(sorted(channels)) for channels in ignored), self._last

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state of a ``snapshot``."""
        times, idle, ended, behind, self._last = state
        self._times, self._idle, self._ended, self._behind = list(times), set(idle), set(ended), set(behind)
        self._by_clock = _at_processing_time(times, self._ended)
        self._counted = self._counted_times()


class EventTimeOfInputs:
    """Combines event time over the inputs of one operator: the minimum of the active inputs.

    An input without event time holds the others back. An input that becomes idle is ignored at once; Flink's DataStream
    V2 ignores it only at the next watermark.
    """

    def __init__(self, inputs: int) -> None:
        self._times = [LONG_MIN] * inputs
        self._idle: set[int] = set()
        self._ended: set[int] = set()
        self.current = LONG_MIN
        self.uses_processing_time = False
        """True if event time is the wall clock. If so, the owner advances it with ``follow_clock``."""

    def update(self, index: int, time: int) -> int | None:
        """Input ``index`` has reached ``time``. Returns the new event time of the operator if it has advanced.

        Both may be ``PROCESSING_TIME``; ``current`` then does not change until ``follow_clock``.
        """
        self._idle.discard(index)
        self._times[index] = max(self._times[index], time)
        return self._advance()

    def set_idle(self, index: int, idle: bool) -> int | None:
        """Input ``index`` became idle or active. Returns the new event time of the operator if it has advanced."""
        (self._idle.add if idle else self._idle.discard)(index)
        return self._advance()

    def end(self, index: int) -> int | None:
        """Input ``index`` has ended. Returns the new event time of the operator if it has advanced.

        It is ``LONG_MAX`` once all inputs have ended. An idle input may still become active.
        """
        self._ended.add(index)
        return self._advance()

    @property
    def by_clock(self) -> set[int]:
        """The inputs at ``PROCESSING_TIME`` that have not ended."""
        return _at_processing_time(self._times, self._ended)

    def follow_clock(self, now_ms: int) -> int | None:
        """Advance event time to the wall clock. Returns the new event time if it has advanced.

        A clock behind event time, for example of an ended input, has no effect.
        """
        return self._moved(now_ms) if self.uses_processing_time else None

    @property
    def reached(self) -> int | None:
        """The event time of the operator, for its progress. After the end: the last one. None: there is none."""
        time = self.current
        if time == LONG_MAX:
            time = max((time for time in self._times if time < LONG_MAX), default=LONG_MIN)
        return None if time == LONG_MIN else time

    def _advance(self) -> int | None:
        if len(self._ended) == len(self._times):
            return self._moved(LONG_MAX)
        by_clock = self.by_clock
        if len(by_clock) + len(self._ended) == len(self._times):
            is_new = not self.uses_processing_time
            self.uses_processing_time = True
            return PROCESSING_TIME if is_new else None
        ignored = self._idle | self._ended | by_clock
        counted = [time for index, time in enumerate(self._times) if index not in ignored]
        return self._moved(min(counted) if counted else _furthest(self._times))

    def _moved(self, time: int) -> int | None:
        if time <= self.current:
            return None
        self.current = time
        return time

    def snapshot(self) -> tuple[Any, ...]:
        """The state as built-in values, for ``restore``."""
        times, idle, ended = tuple(self._times), tuple(sorted(self._idle)), tuple(sorted(self._ended))
        return times, idle, ended, self.current, self.uses_processing_time

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state of a ``snapshot``."""
        times, idle, ended, self.current, self.uses_processing_time = state
        self._times, self._idle, self._ended = list(times), set(idle), set(ended)


class SentEventTime:
    """The event time that one sender, a subtask of a function or a source, has emitted (FLIP-326).

    Attributes:
        idle: Whether the sender has declared itself idle. Receivers ignore the event time of an idle sender.
        inputs_idle: Whether the sender was declared idle because all of its inputs are.
    """

    def __init__(self) -> None:
        self.idle = False
        self.inputs_idle = False
        self._greatest = LONG_MIN
        self._uses_processing_time = False

    def check(self, time: int, now_ms: int) -> None:
        """Raise ``ContractError`` if ``time``, possibly ``PROCESSING_TIME``, must not be emitted at ``now_ms``."""
        if self._uses_processing_time and time != PROCESSING_TIME:
            raise ContractError(
                "No event time can be emitted after use_processing_time, because event time is the wall clock from "
                "then on. If the flag came from upstream, return POLL for it in on_watermark so that it is not "
                "forwarded."
            )
        if time == PROCESSING_TIME and now_ms < self._greatest:
            raise ContractError(
                f"use_processing_time cannot be emitted yet: event time never decreases, but the wall clock "
                f"({now_ms} ms) is behind the last emitted event time ({self._greatest} ms)."
            )

    def sends(self, time: int) -> bool:
        """Return whether to send ``time`` downstream, and record it as sent. It may be ``PROCESSING_TIME``."""
        if time == PROCESSING_TIME:
            self._uses_processing_time = True
            return True
        if self._uses_processing_time or time <= self._greatest:
            return False
        if not self.idle:
            self._greatest = time
        return True

    def snapshot(self) -> tuple[Any, ...]:
        """The state as built-in values, for ``restore``."""
        return self.idle, self.inputs_idle, self._greatest, self._uses_processing_time

    def restore(self, state: tuple[Any, ...]) -> None:
        """Restore the state of a ``snapshot``."""
        self.idle, self.inputs_idle, self._greatest, self._uses_processing_time = state

    @staticmethod
    def successor(states: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
        """A snapshot for a sender on new channels that replaces the senders with ``states``."""
        return False, False, LONG_MIN, all(uses_processing_time for *_, uses_processing_time in states)


def all_idle(members: int, idle: set[int], ended: set[int], by_clock: set[int]) -> bool:
    """Return whether the receiver of ``members`` channels or inputs is idle: none of them advances event time.

    Those that have not ended are idle, or follow the clock while one that does not is idle.

    Args:
        members: Their number.
        idle: Those that have said that they are idle, and have not ended.
        ended: Those that have ended.
        by_clock: Those at ``PROCESSING_TIME`` that have not ended.
    """
    active = members - len(idle) - len(ended)
    if not active:
        return bool(idle)
    return active == len(by_clock - idle) and not idle <= by_clock


def _furthest(times: Iterable[int]) -> int:
    return max((time for time in times if time != PROCESSING_TIME), default=LONG_MIN)


def _at_processing_time(times: Sequence[int], ended: set[int]) -> set[int]:
    return {number for number, time in enumerate(times) if time == PROCESSING_TIME and number not in ended}
