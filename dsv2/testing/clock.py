"""A manual clock for tests."""

from __future__ import annotations

from datetime import timedelta

from dsv2.checks.arguments import as_milliseconds


class ManualClock:
    """A ``Clock`` that is set by hand, for harnesses and for ``LocalRuntime(clock=...)``.

    Args:
        now_ms: The initial time, in ms since the epoch.
        step: How far each reading advances the clock, so that a job that waits for a time reaches it.

    Raises:
        ConfigurationError: ``step`` is negative.
    """

    def __init__(self, now_ms: int = 0, *, step: timedelta = timedelta(0)) -> None:
        self._now = now_ms
        self._step = as_milliseconds(step, "step", at_least=0)

    def now_ms(self) -> int:
        """Return the time in ms since the epoch."""
        now = self._now
        self._now += self._step
        return now

    def wait(self, duration: timedelta) -> None:
        """Advance the clock by ``duration`` instead of waiting."""
        self.advance(duration)

    def advance(self, duration: timedelta) -> None:
        """Advance the clock by ``duration``. Raises ``ConfigurationError`` if it is negative."""
        self._now += as_milliseconds(duration, "duration", at_least=0)
