"""Keyed timers of one operator in one subtask, in event time or processing time.

A timer is identified by its key and timestamp, so registering it twice has no effect. The timers of a key are part of
its entry in the keyed store. The store indexes the earliest timer of each page, so other timers cost nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

from dsv2.runtime.state.keyed_store import PagedKeyedStore

_timestamp = itemgetter(0)


class BatchTime:
    """Processing time. It is constant within a micro-batch, so that a retry produces the same results."""

    __slots__ = ("now_ms",)

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms


class TimerService:
    """The timers of one ``domain``."""

    def __init__(self, domain: int, store: PagedKeyedStore) -> None:
        self._domain = domain
        self._store = store
        self._until: int | None = None  # set while timers fire
        self._meanwhile: list[tuple[int, int, Any]] = []  # a heap of due timers registered while timers fire
        self._order = 0

    def register(self, key: Any, timestamp: int) -> None:
        """Register a timer of ``key`` at ``timestamp`` ms, unless it exists."""
        entry = self._store.entry(key)
        timers = entry.get(self._domain)
        if timers is None:
            entry[self._domain] = [timestamp]
        else:
            place = bisect_left(timers, timestamp)
            if place < len(timers) and timers[place] == timestamp:
                return
            timers.insert(place, timestamp)
        self._store.timers += 1
        if self._until is not None and timestamp <= self._until:
            self._order += 1
            heappush(self._meanwhile, (timestamp, self._order, key))
        else:
            self._store.add_deadline(self._domain, key, timestamp)

    def delete(self, key: Any, timestamp: int) -> None:
        """Delete a timer if it exists."""
        self._remove(key, timestamp)

    def of(self, key: Any) -> list[int]:
        """The times of the timers of a key, ascending."""
        return list((self._store.find(key) or {}).get(self._domain, ()))

    def advance(self, time: int, fire: Callable[[int, Any], None], *, last: bool = False) -> None:
        """Fire the timers up to ``time`` in order of time.

        Args:
            time: The current time of the domain, in ms.
            fire: Called with the timestamp and key of each timer.
            last: Whether this is the last call. Due timers that are registered in the meantime also fire, except in
                the last call, where a timer that registers itself again would fire forever.
        """
        first = self._store.next_deadline(self._domain)
        if first is None or first > time:
            return
        due = self._store.take_due(self._domain, time)
        due.sort(key=_timestamp)  # stable, so that timers of the same time keep their deterministic order
        self._until = None if last else time
        try:
            for timestamp, key in due:
                while self._meanwhile and self._meanwhile[0][0] < timestamp:
                    self._fire_meanwhile(fire)
                if self._remove(key, timestamp):
                    fire(timestamp, key)
            while self._meanwhile:
                self._fire_meanwhile(fire)
        finally:
            self._until = None
            self._meanwhile.clear()

    def next_time(self) -> int | None:
        """Return the time of the next timer, or an earlier time if one was deleted; None if there is none."""
        return self._store.next_deadline(self._domain)

    def _fire_meanwhile(self, fire: Callable[[int, Any], None]) -> None:
        timestamp, _, key = heappop(self._meanwhile)
        if self._remove(key, timestamp):
            fire(timestamp, key)

    def _remove(self, key: Any, timestamp: int) -> bool:
        entry = self._store.entry(key)
        timers = entry.get(self._domain, ())
        place = bisect_left(timers, timestamp)
        if place == len(timers) or timers[place] != timestamp:
            return False
        del timers[place]
        self._store.timers -= 1
        if not timers:
            del entry[self._domain]
        return True
