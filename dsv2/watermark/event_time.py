"""How event time is put together: over the channels of an input, and over the inputs of an operator.

Event time and idleness are signals of everybody's (Flink ``EventTimeWatermarkCombiner``, ``EventTimeWatermarkHandler``;
FLINK-5017): event time never goes back, an idle channel or input is not waited for, and one that is active again is
waited for only once it has caught up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

__all__ = ("EVENT_TIME", "IDLE_STATUS", "LONG_MAX", "LONG_MIN", "EventTimeCombiner", "EventTimeOfInputs")

EVENT_TIME: Final = "BUILTIN_API_EVENT_TIME"
IDLE_STATUS: Final = "BUILTIN_API_EVENT_TIME_IDLE"
LONG_MIN: Final = -(1 << 63)
"""Event time before the first watermark, in ms."""
LONG_MAX: Final = (1 << 63) - 1
"""Event time when all input has ended, in ms."""


class EventTimeCombiner:
    """Over the channels of one input. Takes the place that other watermarks' combiners have in a gate."""

    aligned = False

    def __init__(self, channels: int, inactive: Iterable[int] = ()) -> None:
        self._times = [LONG_MIN] * channels
        self._inactive = set(inactive)
        self._behind: set[int] = set()  # active again, but not where the others are
        self._last = LONG_MIN

    def update(self, channel: int, value: int) -> int | None:
        """``channel`` is at ``value``; returns the new event time of the input, if it has moved on."""
        if channel in self._inactive or value <= self._times[channel]:
            return None
        self._times[channel] = value
        if value >= self._last:
            self._behind.discard(channel)
        return self._advance()

    def deactivate(self, channel: int) -> int | None:
        """``channel`` is idle or has ended: the others go on without it."""
        self._inactive.add(channel)
        if len(self._inactive) == len(self._times):
            # Nobody is left to wait for. A channel that lagged behind has nothing to say about the others.
            return self._moved(max(self._times)) if self._times[channel] == self._last else None
        return self._advance()

    def activate(self, channel: int) -> int | None:
        """An idle ``channel`` is active again; it is waited for once it is where the others are."""
        self._inactive.discard(channel)
        if self._times[channel] < self._last:
            self._behind.add(channel)
        return None

    def _advance(self) -> int | None:
        left_out = self._inactive | self._behind
        times = [time for channel, time in enumerate(self._times) if channel not in left_out]
        return self._moved(min(times)) if times else None

    def _moved(self, time: int) -> int | None:
        if time <= self._last:
            return None
        self._last = time
        return time

    def snapshot(self) -> tuple[Any, ...]:
        """State as plain built-in values, for ``restore``."""
        return tuple(self._times), tuple(sorted(self._inactive)), tuple(sorted(self._behind)), self._last

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over the state of an earlier ``snapshot``."""
        times, inactive, behind, self._last = state
        self._times, self._inactive, self._behind = list(times), set(inactive), set(behind)


class EventTimeOfInputs:
    """Over the inputs of one operator: the least of those that are active. One that has said nothing is waited for.

    (Flink does not look again when an input goes idle; here its event time is then left out at once.)
    """

    def __init__(self, inputs: int) -> None:
        self._times = [LONG_MIN] * inputs
        self._idle: set[int] = set()
        self._ended: set[int] = set()
        self.current = LONG_MIN

    def update(self, index: int, time: int) -> int | None:
        """Input ``index`` is at ``time``; returns the operator's new event time, if it has moved on."""
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

    def _advance(self) -> int | None:
        left_out = self._idle | self._ended
        active = [time for index, time in enumerate(self._times) if index not in left_out]
        if len(self._ended) == len(self._times):
            active = [LONG_MAX]
        if not active or min(active) <= self.current:
            return None
        self.current = min(active)
        return self.current

    def snapshot(self) -> tuple[Any, ...]:
        """State as plain built-in values, for ``restore``."""
        return tuple(self._times), tuple(sorted(self._idle)), tuple(sorted(self._ended)), self.current

    def restore(self, state: tuple[Any, ...]) -> None:
        """Take over the state of an earlier ``snapshot``."""
        times, idle, ended, self.current = state
        self._times, self._idle, self._ended = list(times), set(idle), set(ended)
