"""A clock for tests."""

from __future__ import annotations

from datetime import timedelta

from dsv2.arguments import as_milliseconds

__all__ = ("ManualClock",)


class ManualClock:
    """A ``Clock`` that tells what it is told: for harnesses, and for ``LocalRuntime(clock=...)``.

    ``now_ms``: the time at first, in ms since the epoch. ``step``: how much it goes on by itself with each reading,
    so that a job that waits for some time to come gets there.
    """

    def __init__(self, now_ms: int = 0, *, step: timedelta = timedelta(0)) -> None:
        self._now = now_ms
        self._step = as_milliseconds(step, "step", at_least=0)

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        now = self._now
        self._now += self._step
        return now

    def advance(self, duration: timedelta) -> None:
        """Let ``duration`` pass. Raises ``ConfigurationError`` if it is negative."""
        self._now += as_milliseconds(duration, "duration", at_least=0)
