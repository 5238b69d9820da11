"""Early firing of windows."""

from __future__ import annotations

from typing import Any

from dsv2.extension.event_time import EventTimeManager
from dsv2.extension.window.entry import EARLY
from dsv2.extension.window.strategy import EarlyFiring, TimeType
from dsv2.spi import KeyEntry
from dsv2.watermark.event_time import LONG_MIN


class EarlyFirings:
    """The early firings of the windows of the current key. A window without new records does not fire early."""

    def __init__(self, early: EarlyFiring, ctx: Any, event_time: EventTimeManager) -> None:
        self.time_type = early.time_type
        self._interval = early.interval
        self._by_event = early.time_type is TimeType.EVENT
        self._timers = event_time if self._by_event else ctx.processing_time_manager
        self._ctx = ctx

    def expect(self, entry: KeyEntry, slot: int, start: int, end: int) -> None:
        """Register an early firing of the window ``slot``, which has a new record, unless it is after ``end``.

        It is due at the next multiple of the interval, in event time not before ``start``. The start of a session may
        have moved back since.
        """
        now, expected = self._timers.current_time(), entry.get(EARLY)
        known = None if expected is None else expected.get(slot)
        if known is not None and known - self._interval <= now:
            return
        if self._by_event:
            now = max(now, start)
            now = self._first_time() if now == LONG_MIN else now
        time = now - now % self._interval + self._interval
        if time >= end - 1 or (known is not None and time >= known):
            return
        entry.setdefault(EARLY, {})[slot] = time
        self._timers.register_timer(time)

    def due(self, entry: KeyEntry, time: int) -> list[int]:
        """The windows that fire early at ``time``. Empty if the timer fires because the input has ended."""
        expected = entry[EARLY]
        slots = [slot for slot, expected_time in expected.items() if expected_time == time]
        for slot in slots:
            del expected[slot]
        if not expected:
            del entry[EARLY]
        return slots if time <= self._timers.current_time() else []

    def _first_time(self) -> int:
        """The time of a record of a window without start, before the first watermark."""
        timestamp: int | None = self._ctx.timestamp
        return LONG_MIN if timestamp is None else timestamp
