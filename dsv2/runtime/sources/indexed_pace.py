"""How far an indexed source may be read at a time, on every runtime."""

from __future__ import annotations

from dsv2.clock import Clock

__all__ = ("DEFAULT_RECORDS_PER_BATCH", "IndexedPace")

DEFAULT_RECORDS_PER_BATCH = 1_000_000


class IndexedPace:
    """The rate of an indexed source. It counts from the first request of a run.

    Args:
        records_per_second: The rate over all subtasks. None: there is no limit.
        clock: The wall clock.
    """

    def __init__(self, records_per_second: float | None, clock: Clock) -> None:
        self._rate = records_per_second
        self._clock = clock
        self._began: tuple[int, int] | None = None  # time in ms and position at the first request

    def available(self, position: int) -> int | None:
        """Return the position up to which the source may be read now; None if there is no limit.

        Args:
            position: How far it has been read.
        """
        if self._rate is None:
            return None
        if self._began is None:
            self._began = (self._clock.now_ms(), position)
        began, base = self._began
        return base + int((self._clock.now_ms() - began) * self._rate / 1000)
