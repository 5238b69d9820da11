"""Limits how much a source reads per micro-batch, so that micro-batches take about the target time."""

from __future__ import annotations

import math
from collections import deque

from dsv2.base.clock import Clock

_MOST = 1_000_000
_FASTEST_CHANGE = 2.0
_PERIODS = 3
_LONGEST_PERIOD = 64  # micro-batches


class AdaptiveLimit:
    """The limit of one source whose micro-batches run back to back.

    The planner calls ``measure``, then ``of`` for the limit, then ``begin`` when the micro-batch is planned. The next
    ``measure`` takes its duration. The limit is a multiple of the source's minimum, so that the source may change its
    unit, and starts at that minimum. Only full micro-batches adjust it: by the square root of target / duration, which
    dampens outliers, and at most by a factor of two. (Spark's ``spark.streaming.backpressure`` uses a PID controller
    instead, which has four parameters to tune.)

    If a micro-batch of the minimum size takes more than half of the target, fixed costs dominate, and the limit aims at
    twice that duration. A backlog has no such micro-batches, so one is planned when the limit has halved, and
    after 64 others. What counts is the shortest duration in the last three periods between micro-batches of
    the minimum size: it may rise, but not because of one outlier.

    ``multiple`` is part of the source's offset. A restart continues with it, after one micro-batch of the minimum size.

    Args:
        target_ms: The target duration of a micro-batch in ms.
        clock: Measures the durations.
    """

    def __init__(self, target_ms: int, clock: Clock) -> None:
        self._target_ms = target_ms
        self._clock = clock
        self._multiple = 1.0
        self._shortest_ms: deque[int] = deque(maxlen=_PERIODS)  # in each period
        self._full_in_period = 0
        self._greatest_multiple = 1.0  # in the period
        self._running: tuple[int, bool, bool] | None = None  # (start in ms, of the minimum size, full)

    @property
    def multiple(self) -> float:
        """The limit as a multiple of the source's minimum."""
        return self._multiple

    def resume(self, multiple: float) -> None:
        """Continue with the ``multiple`` of an earlier run. Does nothing once a micro-batch has been planned."""
        if self._running is None and not self._shortest_ms:
            self._multiple = min(max(multiple, 1.0), _MOST)

    def measure(self) -> None:
        """Record that the previous micro-batch, if any, has ended."""
        if self._running is None:
            return
        began, least, full = self._running
        self._running = None
        took = max(1, self._clock.now_ms() - began)
        if least or not self._shortest_ms:
            self._shortest_ms.append(took)
            self._full_in_period, self._greatest_multiple = 0, self._multiple
        else:
            self._shortest_ms[-1] = min(took, self._shortest_ms[-1])
        if full:
            self._full_in_period += 1
            wanted = max(self._target_ms, 2 * min(self._shortest_ms))
            change = min(max(math.sqrt(wanted / took), 1 / _FASTEST_CHANGE), _FASTEST_CHANGE)
            self._multiple = min(max(self._multiple * change, 1.0), _MOST)
            self._greatest_multiple = max(self._multiple, self._greatest_multiple)

    def of(self, least: int) -> int:
        """Return the limit of the next micro-batch, for a source whose minimum is ``least``."""
        return least if self._ends_period else int(self._multiple * least)

    def begin(self, size: int, least: int) -> None:
        """Record that a micro-batch of ``size`` begins, for a source whose minimum is ``least``."""
        full = not self._ends_period and size >= self.of(least)
        self._running = self._clock.now_ms(), size <= least, full

    @property
    def _ends_period(self) -> bool:
        """True if the next micro-batch has the minimum size because the last one of that size is too long ago."""
        if not self._shortest_ms:
            return self._multiple > 1.0  # the limit is that of an earlier run
        return self._full_in_period >= _LONGEST_PERIOD or 2 * self._multiple < self._greatest_multiple
