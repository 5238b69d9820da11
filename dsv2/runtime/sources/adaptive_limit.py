"""Limits how much a source reads per micro-batch, so that micro-batches take about the target time."""

from __future__ import annotations

import math

from dsv2.clock import Clock

__all__ = ("AdaptiveLimit",)

_MOST = 1_000_000
_FASTEST_CHANGE = 2.0


class AdaptiveLimit:
    """The limit of one source whose micro-batches run back to back.

    The planner calls ``measure``, then ``of`` for the limit, then ``begin`` when the micro-batch is planned. The next
    ``measure`` takes its duration. The limit is a multiple of the source's minimum, so that the source may change its
    unit, and starts at that minimum. Only full micro-batches adjust it: by the square root of target / duration, which
    dampens outliers, and at most by a factor of two. (Spark's ``spark.streaming.backpressure`` uses a PID controller
    instead, which has four parameters to tune.)

    Args:
        target_ms: The target duration of a micro-batch in ms. If twice the shortest duration so far is longer, that is
            used instead, because fixed costs would dominate shorter micro-batches.
        clock: Measures the durations.
    """

    def __init__(self, target_ms: int, clock: Clock) -> None:
        self._target_ms = target_ms
        self._clock = clock
        self._multiple = 1.0
        self._shortest_ms: int | None = None
        self._running: tuple[int, bool] | None = None  # (start in ms, whether it is full)

    def measure(self) -> None:
        """Record that the previous micro-batch, if any, has ended."""
        if self._running is None:
            return
        began, full = self._running
        self._running = None
        took = max(1, self._clock.now_ms() - began)
        self._shortest_ms = took if self._shortest_ms is None else min(took, self._shortest_ms)
        if full:
            wanted = max(self._target_ms, 2 * self._shortest_ms)
            change = min(max(math.sqrt(wanted / took), 1 / _FASTEST_CHANGE), _FASTEST_CHANGE)
            self._multiple = min(max(self._multiple * change, 1.0), _MOST)

    def of(self, least: int) -> int:
        """Return the limit of the next micro-batch, for a source whose minimum is ``least``."""
        return int(self._multiple * least)

    def begin(self, *, full: bool) -> None:
        """Record that a micro-batch begins. ``full``: whether it reads as much as ``of`` allows."""
        self._running = self._clock.now_ms(), full
