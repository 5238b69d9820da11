"""The places at which a test wants a source to wait, stop or fail: in one run of a job on Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping

from dsv2.clock import Clock
from dsv2.errors import JobError
from dsv2.graph import Operator
from dsv2.sources import Crash, Interruption, Pause

__all__ = ("Interruptions",)

_PACE_SECONDS = 0.01


class Interruptions:
    """Those of one source. ``begin`` says where the run begins: what is there has happened in the run before."""

    def __init__(self, places: Mapping[int, Interruption]) -> None:
        self._places = places
        self._began: int | None = None
        self._pause: tuple[int, int] | None = None  # position, and when it is over in ms

    def begin(self, position: int) -> None:
        """Call with each position that is asked about; the first one counts."""
        if self._began is None:
            self._began = position

    def hold(self, position: int, operator: Operator, clock: Clock, *, wait: bool) -> bool:
        """Whether nothing behind ``position`` is there for now. ``wait``: for pauses to end, instead of saying so.

        Raises ``JobError`` for a crash.
        """
        here = self._places.get(position)
        if here is None or self._began is None or position <= self._began:
            return False
        if isinstance(here, Crash):
            raise JobError(f"The source {operator}, defined at {operator.location}, crashed: {here.message}")
        if not isinstance(here, Pause):
            return True
        if self._pause is None or self._pause[0] != position:
            self._pause = position, clock.now_ms() + here.ms
        while wait and clock.now_ms() < self._pause[1]:
            time.sleep(_PACE_SECONDS)
        return clock.now_ms() < self._pause[1]

    def next(self, position: int) -> int | None:
        """The first place behind ``position``."""
        return min((place for place in self._places if place > position), default=None)
