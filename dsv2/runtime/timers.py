"""Keyed timers of one operator in one subtask, in event time or in processing time.

A timer is known by its key and time, so registering it twice is registering it once. Those of a key are part of its
entry in the keyed store; each page of the store knows its earliest, so what is not due costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Any

from dsv2.runtime.keyed_store import PagedKeyedStore

__all__ = ("BatchTime", "TimerService")


class BatchTime:
    """Processing time, which stands still within a micro-batch, so that a repeated one repeats itself exactly."""

    __slots__ = ("now_ms",)

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms


class TimerService:
    """The timers of one ``domain``. The caller says which key is meant, and what firing is."""

    def __init__(self, domain: int, store: PagedKeyedStore) -> None:
        self._domain = domain
        self._store = store
        self._firing: list[tuple[int, int, Any]] = []
        self._until: int | None = None  # set while timers fire
        self._order = 0

    def register(self, key: Any, timestamp: int) -> None:
        """Set a timer of ``key`` to ``timestamp``; nothing happens if there is one."""
        entry = self._store.entry(key)
        timers = entry.get(self._domain)
        if timers is None:
            entry[self._domain] = [timestamp]
        else:
            place = bisect_left(timers, timestamp)
            if place < len(timers) and timers[place] == timestamp:
                return
            timers.insert(place, timestamp)
        if self._until is not None and timestamp <= self._until:
            self._order += 1
            heappush(self._firing, (timestamp, self._order, key))
        else:
            self._store.add_deadline(self._domain, key, timestamp)

    def delete(self, key: Any, timestamp: int) -> None:
        """Take a timer back; nothing happens if there is none."""
        self._remove(key, timestamp)

    def advance(self, time: int, fire: Callable[[int, Any], None], *, last: bool = False) -> None:
        """Call ``fire(timestamp, key)`` for every timer up to ``time``, in order of time.

        Timers that are registered meanwhile and are due fire as well; not if this is the ``last`` time, because one
        that registers itself anew would never come to an end.
        """
        first = self._store.next_deadline(self._domain)
        if first is None or first > time:
            return
        due = self._store.take_due(self._domain, time)
        self._firing = [(timestamp, order, key) for order, (timestamp, key) in enumerate(due)]
        heapify(self._firing)
        self._order = len(due)
        self._until = None if last else time
        try:
            while self._firing:
                timestamp, _, key = heappop(self._firing)
                if self._remove(key, timestamp):
                    fire(timestamp, key)
        finally:
            self._until = None

    def next_time(self) -> int | None:
        """When the next timer is due, or a time before it if that one was taken back; None if there is none."""
        return self._store.next_deadline(self._domain)

    def _remove(self, key: Any, timestamp: int) -> bool:
        entry = self._store.entry(key)
        timers = entry.get(self._domain, ())
        place = bisect_left(timers, timestamp)
        if place == len(timers) or timers[place] != timestamp:
            return False
        del timers[place]
        if not timers:
            del entry[self._domain]
        return True
