"""The clock interface, the system clock and a clock for durations. No other code reads the wall clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

elapsed_ns: Callable[[], int] = time.perf_counter_ns
"""Returns a time in ns that never goes back, to measure durations for progress. Nothing else may depend on it."""

thread_ns: Callable[[], int] = time.thread_time_ns
"""Returns the CPU time of this thread in ns, to let it rest. Nothing else may depend on it."""


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
