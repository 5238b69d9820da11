"""Early firing of windows."""

from __future__ import annotations

from typing import Any

from dsv2.extension.event_time import EventTimeManager
from dsv2.extension.window.entry import EARLY
from dsv2.extension.window.strategy import EarlyFiring, TimeType
from dsv2.spi import KeyEntry
from dsv2.watermark.event_time import LONG_MIN

__all__ = ("EarlyFirings",)


class EarlyFirings:
    """The early firings of the windows of the current key. A window without new records does not fire early."""

    def __init__(self, early: EarlyFiring, ctx: Any, event_time: EventTimeManager) -> None:
        self.time_type = early.time_type
        self._interval = early.interval
        self._by_event = early.time_type is TimeType.EVENT
        self._timers = event_time if self._by_event else ctx.processing_time_manager
        self._ctx = ctx

    def expect(self, entry: KeyEntry, slot: int, end: int) -> None:
        """Register an early firing of the window ``slot``, which has a new record, unless it is after ``end``."""
        expected = entry.get(EARLY)
        if expected is not None and slot in expected:
            return
        now = self._now()
        time = now - now % self._interval + self._interval
        if time >= end - 1:
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

    def _now(self) -> int:
        now: int = self._timers.current_time()
        if not self._by_event:
            return now
        timestamp: int | None = self._ctx.timestamp
        return max(now, LONG_MIN if timestamp is None else timestamp)
