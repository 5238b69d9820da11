"""A clock for tests."""

from __future__ import annotations

__all__ = ("ManualClock",)


class ManualClock:
    """A ``Clock`` that tells what it is told: for harnesses, and for ``LocalRuntime(clock=...)``.

    ``now_ms``: the time at first, in ms since the epoch. ``step_ms``: how much it goes on by itself with each reading,
    so that a job that waits for some time to come gets there.
    """

    def __init__(self, now_ms: int = 0, *, step_ms: int = 0) -> None:
        self._now = now_ms
        self._step = step_ms

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        now = self._now
        self._now += self._step
        return now

    def advance(self, ms: int) -> None:
        """Let ``ms`` milliseconds pass. Raises ``ValueError`` for less than 0."""
        if ms < 0:
            raise ValueError(f"A clock does not go back: {ms} ms.")
        self._now += ms
