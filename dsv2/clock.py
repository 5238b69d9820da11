"""The clock interface and the system clock, which is the only code that reads the wall clock."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Protocol

__all__ = ("Clock", "SystemClock")


class Clock(Protocol):
    """A source of the current time. Tests inject their own."""

    def now_ms(self) -> int:
        """The current time in ms since the epoch."""

    def wait(self, duration: timedelta) -> None:
        """Wait before a callback is repeated, see ``ErrorPolicy.retry``."""


class SystemClock:
    """The wall clock of the machine."""

    def now_ms(self) -> int:
        """The current time in ms since the epoch."""
        return time.time_ns() // 1_000_000

    def wait(self, duration: timedelta) -> None:
        """Sleep for ``duration``."""
        time.sleep(duration.total_seconds())
