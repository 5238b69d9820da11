"""Windows in the plainest way: all windows in a list, all of them looked through whenever time moves.

No timers, no state, no short ways; what is remembered of a window is its records, and when it is to fire early.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from dsv2.extension.window import WindowStrategy
from dsv2.extension.window.strategy import CountWindowStrategy, SessionWindowStrategy, SlidingWindowStrategy
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN

__all__ = ("SlowWindows",)

Event: TypeAlias = tuple[Any, ...]


@dataclass(eq=False)
class Slow:
    """A window of a key. ``last``: when it fires; ``early``: when it fires before that. ``records``: by input."""

    key: Any
    span: tuple[int, int]
    last: int
    records: tuple[list[Any], ...]
    early: int | None = None

    def trigger(self) -> Event:
        """What is told when it fires."""
        return ("trigger", self.key, *self.span, *map(tuple, self.records))

    def clear(self) -> Event:
        """What is told when it is removed."""
        return ("clear", self.key, *self.span)


class SlowWindows:
    """The windows of all keys of a function that tells what it sees: ``Told``, or for two inputs ``ToldOfTwo``."""

    def __init__(self, strategy: WindowStrategy, inputs: int = 1) -> None:
        self._strategy: Any = strategy
        self._inputs = inputs
        self._lateness = strategy.allowed_lateness if isinstance(strategy, SlidingWindowStrategy) else 0
        self._time = LONG_MIN
        self._windows: list[Slow] = []
        self._counts: dict[Any, int] = {}

    def record(self, key: Any, record: Any, timestamp: int, side: int = 0) -> list[Event]:
        """A record comes from the input ``side``: what is told."""
        windows = [window for window in self._windows_of(key, timestamp) if window.last + self._lateness > self._time]
        events: list[Event] = []
        for window in windows:
            if window not in self._windows:
                self._windows.append(window)
            window.records[side].append(record)
            if isinstance(self._strategy, CountWindowStrategy) and self._is_full(window):
                self._windows.remove(window)
                events += [window.trigger(), window.clear()]
            elif window.last <= self._time:
                events.append(window.trigger())
            else:
                self._expect_early(window, timestamp)
        if not windows and timestamp + self._lateness <= self._time and not self._is_endless():
            events.append(("late" if self._inputs == 1 else f"late{side + 1}", key, record))
        return events

    def advance(self, time: int) -> list[Event]:
        """Event time moves to ``time``: what is told, in order for each key."""
        due: list[tuple[int, int, Event]] = []
        for place, window in enumerate(self._windows):
            rank = 2 * place if self._is_endless() else 0
            if self._time < window.last <= time:
                due.append((window.last, rank, window.trigger()))
            elif window.early is not None and window.early <= time:
                due.append((window.early, rank + 2, window.trigger()))
                window.early = None
            if window.last + self._lateness <= time:
                due.append((window.last + self._lateness, rank + 1, window.clear()))
        self._time = time
        self._windows = [window for window in self._windows if window.last + self._lateness > time]
        return [event for _, _, event in sorted(due, key=lambda event: event[:2])]

    def _windows_of(self, key: Any, timestamp: int) -> list[Slow]:
        strategy = self._strategy
        if isinstance(strategy, SlidingWindowStrategy):
            newest = timestamp - (timestamp - strategy.offset) % strategy.slide
            starts = range(newest, timestamp - strategy.size, -strategy.slide)
            return [self._window(key, start, start + strategy.size) for start in starts]
        if isinstance(strategy, SessionWindowStrategy):
            return [self._session(key, timestamp, timestamp + strategy.gap)]
        if not isinstance(strategy, CountWindowStrategy):
            return [self._window(key, -1, -1)]
        number = self._counts.get(key, 0)
        self._counts[key] = number + 1
        opened = [] if number % strategy.slide else [self._new(key, -1, -1)]
        return [window for window in self._windows if window.key == key] + opened

    def _window(self, key: Any, *span: int) -> Slow:
        there = [window for window in self._windows if (window.key, window.span) == (key, span)]
        return there[0] if there else self._new(key, *span)

    def _new(self, key: Any, *span: int) -> Slow:
        last = LONG_MAX if self._is_endless() else span[1] - 1
        return Slow(key, (span[0], span[1]), last, tuple([] for _ in range(self._inputs)))

    def _session(self, key: Any, start: int, end: int) -> Slow:
        met = [w for w in self._windows if w.key == key and w.span[0] <= end and start <= w.span[1]]
        met.sort(key=lambda window: window.span)
        merged = self._new(key, min([start, *(w.span[0] for w in met)]), max([end, *(w.span[1] for w in met)]))
        for window in met:
            self._windows.remove(window)
            for records, more in zip(merged.records, window.records, strict=True):
                records += more
        merged.early = min((w.early for w in met if w.early is not None), default=None)
        return merged

    def _is_full(self, window: Slow) -> bool:
        is_full: bool = sum(map(len, window.records)) == self._strategy.size
        return is_full

    def _is_endless(self) -> bool:
        return not isinstance(self._strategy, SlidingWindowStrategy | SessionWindowStrategy)

    def _expect_early(self, window: Slow, timestamp: int) -> None:
        if self._strategy.early_firing is None or window.early is not None:
            return
        interval = self._strategy.early_firing.interval
        time = (max(self._time, timestamp) // interval + 1) * interval
        if time < window.last:
            window.early = time
