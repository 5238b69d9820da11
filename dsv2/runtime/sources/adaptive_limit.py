"""How much a source gives to the next micro-batch, so that each takes about as long as it is meant to."""

from __future__ import annotations

import math

from dsv2.clock import Clock

__all__ = ("AdaptiveLimit",)

_MOST = 1_000_000
_FASTEST_CHANGE = 2.0


class AdaptiveLimit:
    """The limit of one source whose micro-batches are planned one right after the other.

    Whoever plans them calls ``measure`` first, then ``of`` for the limit, then ``begin`` once the micro-batch is
    planned: the next call of ``measure`` tells how long it took. It begins with as little as the source says is worth a
    micro-batch, and counts in multiples of that, so a source may change what it counts. Only a micro-batch that was
    full tells anything: the limit is then changed by the square root of how far off it was (the whole way would follow
    every hiccup), to the double or the half at most. (Spark's ``spark.streaming.backpressure`` steers by a PID
    controller instead, which has four factors to choose.)

    ``target_ms``: how long a micro-batch should take; or twice as long as the shortest so far if that is more, since of
    less hardly anything would be left for records.
    """

    def __init__(self, target_ms: int, clock: Clock) -> None:
        self._target_ms = target_ms
        self._clock = clock
        self._multiple = 1.0
        self._shortest_ms: int | None = None
        self._running: tuple[int, bool] | None = None  # since when in ms, and whether it is full

    def measure(self) -> None:
        """The micro-batch before, if there was one, is over."""
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
        """The limit of the next micro-batch, for a source that gives ``least`` at least."""
        return int(self._multiple * least)

    def begin(self, *, full: bool) -> None:
        """A micro-batch begins. ``full``: as much was there to be read as ``of`` allowed."""
        self._running = self._clock.now_ms(), full
