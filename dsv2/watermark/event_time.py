"""How event time is put together: over the channels of an input, and over the inputs of an operator.

Event time and idleness are signals of everybody's (Flink ``EventTimeWatermarkCombiner``, ``EventTimeWatermarkHandler``;
FLINK-5017): event time never goes back, an idle channel or input is not waited for, and one that is active again is
waited for only once it has caught up.

Who sends the flag (FLIP-326 ``useProcessingTime``) says that its event time is the wall clock from then on. It holds
nobody back any more, so it counts as a time beyond all others, ``PROCESSING_TIME``. The whole has it when
all have: an idle one that has not may still have something to say, and is waited for. One that has ended is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dsv2.errors import ContractError

__all__ = (
    "EVENT_TIME",
    "IDLE_STATUS",
    "LONG_MAX",
    "LONG_MIN",
    "PROCESSING_TIME",
    "RESERVED",
    "USE_PROCESSING_TIME",
    "EventTimeCombiner",
    "EventTimeOfInputs",
    "SentEventTime",
)

RESERVED: Final = "BUILTIN_API_"
"""What the identifiers begin with that programs cannot declare."""
EVENT_TIME: Final = "BUILTIN_API_EVENT_TIME"
IDLE_STATUS: Final = "BUILTIN_API_EVENT_TIME_IDLE"
USE_PROCESSING_TIME: Final = "BUILTIN_API_EVENT_TIME_USE_PROCESSING_TIME"
LONG_MIN: Final = -(1 << 63)
"""Event time before the first watermark, in ms."""
LONG_MAX: Final = (1 << 63) - 1
"""Event time when all input has ended, in ms."""
PROCESSING_TIME: Final = LONG_MAX + 1
"""Stands for the event time of what follows the wall clock; no watermark has it."""


class EventTimeCombiner:
    """Over the channels of one input. Takes the place that other watermarks' combiners have in a gate."""

    aligned = False

    def __init__(self, channels: int, idle: Iterable[int] = (), ended: Iterable[int] = ()) -> None:
        self._times = [LONG_MIN] * channels
        self._idle = set(idle)
        self._ended = set(ended)
        self._behind: set[int] = set()  # active again, but not where the others are
        self._last = LONG_MIN

    def update(self, channel: int, value: int) -> int | None:
        """``channel`` is at ``value``; returns the new event time of the input, if it has moved on.

        Either may be ``PROCESSING_TIME``. A channel that is, is active for good.
        """
        if value == PROCESSING_TIME:
            self._idle.discard(channel)
        if channel in self._idle or value <= self._times[channel]:
            return None
        self._times[channel] = value
        if value >= self._last:
            self._behind.discard(channel)
        return self._advance()

    def deactivate(self, channel: int) -> int | None:
        """``channel`` is idle: the others go on without it."""
        if self._times[channel] == PROCESSING_TIME:
            return None
        self._idle.add(channel)
        return self._leave(channel)

    def activate(self, channel: int) -> int | None:
        """An idle ``channel`` is active again; it is waited for once it is where the others are."""
        self._idle.discard(channel)
        if self._times[channel] < self._last:
            self._behind.add(channel)
        return None

    def end(self, channel: int) -> int | None:
        """``channel`` has ended: the others go on without it."""
        was_idle = channel in self._idle
        self._idle.discard(channel)
        self._ended.add(channel)
        return self._advance() if was_idle else self._leave(channel)

    def following(self) -> None:
        """As in the other combiners; there is never more than one new event time."""

    def _leave(self, channel: int) -> int | None:
        if len(self._idle) + len(self._ended) < len(self._times):
            return self._advance()
        # Nobody is left to wait for. A channel that lagged behind has nothing to say about the others.
        furthest = max((time for time in self._times if time != PROCESSING_TIME), default=LONG_MIN)
        return self._moved(furthest) if self._times[channel] == self._last else None

    def _advance(self) -> int | None:
        left_out = self._idle | self._ended | self._behind
        least = min((time for channel, time in enumerate(self._times) if channel not in left_out), default=LONG_MIN)
        if least == PROCESSING_TIME and not _all_by_clock(self._times, self._ended):
            return None
        return self._moved(least)

    def _moved(self, time: int) -> int | None:
        if time <= self._last:
            return None
        self._last = time
        return time

    def snapshot(self) -> tuple[Any, ...]:
        """State as plain built-in values, for ``restore``."""
        left_out = (self._idle, self._ended, self._behind)
        return tuple(self._times), *(tuple(sorted(channels)) for channels in left_out), self._last

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over the state of an earlier ``snapshot``."""
        times, idle, ended, behind, self._last = state
        self._times, self._idle, self._ended, self._behind = list(times), set(idle), set(ended), set(behind)

    def restore_delivered(self, state: tuple[Any, ...]) -> None:
        """Take over from a ``snapshot`` over other channels what was delivered: event time does not go back."""
        *_, self._last = state


class EventTimeOfInputs:
    """Over the inputs of one operator: the least of those that are active. One that has said nothing is waited for.

    (Flink does not look again when an input goes idle; here its event time is then left out at once.)
    """

    def __init__(self, inputs: int) -> None:
        self._times = [LONG_MIN] * inputs
        self._idle: set[int] = set()
        self._ended: set[int] = set()
        self.current = LONG_MIN
        self.uses_processing_time = False
        """Whether event time is the wall clock: whoever has one calls ``follow_clock``."""

    def update(self, index: int, time: int) -> int | None:
        """Input ``index`` is at ``time``; returns the operator's new event time, if it has moved on.

        Either may be ``PROCESSING_TIME``; ``current`` then stays where it is until ``follow_clock``.
        """
        self._idle.discard(index)
        self._times[index] = max(self._times[index], time)
        return self._advance()

    def set_idle(self, index: int, idle: bool) -> int | None:
        """Input ``index`` went idle or active; returns the operator's new event time, if it has moved on."""
        (self._idle.add if idle else self._idle.discard)(index)
        return self._advance()

    def end(self, index: int) -> int | None:
        """Input ``index`` has ended; returns the operator's new event time, if it has moved on.

        The end of all time comes with the last input: an idle one may still go on.
        """
        self._ended.add(index)
        return self._advance()

    def follow_clock(self, now_ms: int) -> int | None:
        """It is ``now_ms`` by the wall clock; returns the new event time, if it has moved on.

        A clock that is behind event time (of an input that has ended, say) is waited for.
        """
        return self._moved(now_ms) if self.uses_processing_time else None

    def _advance(self) -> int | None:
        if len(self._ended) == len(self._times):
            return self._moved(LONG_MAX)
        if _all_by_clock(self._times, self._ended):
            is_new = not self.uses_processing_time
            self.uses_processing_time = True
            return PROCESSING_TIME if is_new else None
        left_out = self._idle | self._ended
        least = min((time for index, time in enumerate(self._times) if index not in left_out), default=LONG_MIN)
        return None if least == PROCESSING_TIME else self._moved(least)

    def _moved(self, time: int) -> int | None:
        if time <= self.current:
            return None
        self.current = time
        return time

    def snapshot(self) -> tuple[Any, ...]:
        """State as plain built-in values, for ``restore``."""
        times, idle, ended = tuple(self._times), tuple(sorted(self._idle)), tuple(sorted(self._ended))
        return times, idle, ended, self.current, self.uses_processing_time

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over the state of an earlier ``snapshot``."""
        times, idle, ended, self.current, self.uses_processing_time = state
        self._times, self._idle, self._ended = list(times), set(idle), set(ended)


class SentEventTime:
    """What one sender, a subtask of a function or of a source, has said of event time (FLIP-326).

    ``idle``: whether it calls itself idle. Receivers ignore the event time that it sends then. ``inputs_idle``: whether
    it was called idle because all of its inputs are.
    """

    def __init__(self) -> None:
        self.idle = False
        self.inputs_idle = False
        self._greatest = LONG_MIN
        self._by_clock = False

    def check(self, time: int, now_ms: int) -> None:
        """Raise ``ContractError`` if ``time``, which may be ``PROCESSING_TIME``, must not be emitted at ``now_ms``."""
        if self._by_clock and time != PROCESSING_TIME:
            raise ContractError(
                "Event time is the wall clock here since use_processing_time was sent, and stays so: no event time can "
                "be emitted any more. If the flag came from upstream, keep it from going on: answer POLL to it in "
                "on_watermark."
            )
        if time == PROCESSING_TIME and now_ms < self._greatest:
            raise ContractError(
                f"use_processing_time cannot be sent yet: event time never goes back, but the wall clock ({now_ms} ms) "
                f"is behind the event time that was sent last ({self._greatest} ms)."
            )

    def sends(self, time: int) -> bool:
        """Whether ``time``, which may be ``PROCESSING_TIME``, goes downstream; if so it counts as sent."""
        if time == PROCESSING_TIME:
            self._by_clock = True
            return True
        if self._by_clock or time <= self._greatest:
            return False
        if not self.idle:
            self._greatest = time
        return True

    def snapshot(self) -> tuple[Any, ...]:
        """State as plain built-in values, for ``restore``."""
        return self.idle, self.inputs_idle, self._greatest, self._by_clock

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over the state of an earlier ``snapshot``."""
        self.idle, self.inputs_idle, self._greatest, self._by_clock = state

    @staticmethod
    def successor(states: Iterable[Sequence[Any]]) -> tuple[Any, ...]:
        """A snapshot for one of the senders that take the place of others, with ``states``, on new channels."""
        return False, False, LONG_MIN, all(by_clock for *_, by_clock in states)


def _all_by_clock(times: list[int], ended: set[int]) -> bool:
    return all(time == PROCESSING_TIME for number, time in enumerate(times) if number not in ended)
