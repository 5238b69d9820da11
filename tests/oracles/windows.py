"""Windows computed in the simplest way: all windows are in a list, and all are checked whenever time moves.

No timers, no state, no optimizations. A window has its records and its next early firing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dsv2.extension.window import TimedRecord, TimeType, WindowStrategy
from dsv2.extension.window.strategy import (
    AssignedWindowStrategy,
    CountWindowStrategy,
    CumulatingWindowStrategy,
    RecordWindowStrategy,
    SessionWindowStrategy,
    SlidingWindowStrategy,
    TimedWindowStrategy,
    TimestampCombiner,
)
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN

Event: TypeAlias = tuple[Any, ...]
Stamped: TypeAlias = tuple[Event, int | None]
"""An event of the function and its timestamp."""


@dataclass(eq=False)
class Slow:
    """A window of a key. ``last``: its firing time, after which it has ``fired``. ``early``: its next early firing.

    ``records``: by input. ``waits``: orders windows that fire early at the same time by their waiting time.
    """

    key: Any
    span: tuple[int, int]
    last: int
    records: tuple[list[Any], ...]
    fired: bool = False
    early: int | None = None
    waits: int = 0
    times: list[int] = field(default_factory=list)
    combine: Callable[[list[int]], int] | None = None
    evictor: Any = None
    times_left: list[int] = field(default_factory=list)

    def trigger(self, timestamp: int | None) -> Stamped:
        """The event of its firing."""
        if self.evictor is None:
            return self._fired(timestamp)
        self._evict(self.evictor.evict_before)
        fired = self._fired(timestamp)
        self._evict(self.evictor.evict_after)
        return fired

    def _evict(self, choose: Callable[..., Any]) -> None:
        left = choose([TimedRecord(*one) for one in zip(self.records[0], self.times_left, strict=True)], self)
        self.records[0][:], self.times_left[:] = [one for one, _ in left], [time for _, time in left]

    def _fired(self, timestamp: int | None) -> Stamped:
        return ("trigger", self.key, *self.span, *map(tuple, self.records)), self._stamp(timestamp)

    def clear(self, timestamp: int | None) -> Stamped:
        """The event of its removal."""
        return ("clear", self.key, *self.span), self._stamp(timestamp)

    def _stamp(self, end: int | None) -> int | None:
        return end if self.combine is None else self.combine(self.times)


class SlowWindows:
    """The windows of all keys of a function that emits its calls: ``WindowRecorder``, or ``TwoInputWindowRecorder``."""

    def __init__(self, strategy: WindowStrategy, inputs: int = 1) -> None:
        self._strategy: Any = strategy
        self._inputs = inputs
        self._lateness = strategy.allowed_lateness if isinstance(strategy, TimedWindowStrategy) else 0
        self._by_event = strategy.time_type is TimeType.EVENT
        self._early = strategy.early_firing
        self._same_time = self._early is not None and self._early.time_type is strategy.time_type
        self._over = LONG_MIN  # windows up to this time have fired
        self._now = 0
        self._windows: list[Slow] = []
        self._counts: dict[Any, int] = {}
        self._waiting = 0
        self._known: dict[Any, list[tuple[int, Any, int]]] = {}

    def record(self, key: Any, record: Any, timestamp: int, side: int = 0) -> list[Stamped]:
        """Return the events of a record from input ``side``."""
        over = self._over if self._by_event else LONG_MIN  # in processing time nothing is late
        if isinstance(self._strategy, RecordWindowStrategy):
            return self._record_of_windows(key, record, timestamp, side)
        all_windows = self._windows_of(key, record, timestamp if self._by_event else self._now)
        windows = [window for window in all_windows if window.last + self._lateness > over]
        events: list[Stamped] = []
        for window in windows:
            if window not in self._windows:
                self._windows.append(window)
            window.records[side].append(record)
            window.times.append(timestamp)
            window.times_left.append(timestamp)
            if isinstance(self._strategy, CountWindowStrategy) and self._is_full(window):
                self._windows.remove(window)
                events += [window.trigger(timestamp), window.clear(timestamp)]
            elif window.last <= over:
                window.fired = True
                events.append(window.trigger(window.last))
            else:
                self._expect_early(window, timestamp)
        if not windows and timestamp + self._lateness <= over and not self._is_endless():
            events.append((("late" if self._inputs == 1 else f"late{side + 1}", key, record), timestamp))
        return events

    def _record_of_windows(self, key: Any, record: Any, time: int, side: int) -> list[Stamped]:
        """All windows that all records define are looked at again."""
        size, known = self._strategy.difference + 1, self._known.setdefault(key, [])
        records = [*known, (time, record, side)]
        ends = [(one - size + 1, one + 1) for one, _, _ in records]
        begins = [(one + 1, one + 1 + size) for one, _, _ in records]
        some = [(start, end) for start, end in begins if any(start <= one < end for one, _, _ in records)]
        spans = [span for span in sorted({*ends, *some}) if span[1] - 1 + self._lateness > self._over]
        if not any(start <= time < end for start, end in spans):
            return [(("late" if self._inputs == 1 else f"late{side + 1}", key, record), time)]
        events: list[Stamped] = []
        for start, end in spans:
            window = self._window(key, start, end)
            is_new = window not in self._windows
            if not is_new and not start <= time < end:
                continue
            if is_new:
                self._windows.append(window)
            for at, one, of in records if is_new else records[-1:]:
                if start <= at < end:
                    window.records[of].append(one)
                    window.times.append(at)
            if window.last <= self._over:
                window.fired = True
                events.append(window.trigger(window.last))
            else:
                self._expect_early(window, time)
        known.append(records[-1])
        return events

    def advance(self, time: int) -> list[Stamped]:
        """Return the events when event time moves to ``time``, in order for each key."""
        return self._move(time) if self._by_event or time == LONG_MAX else []

    def pass_time(self, now: int) -> list[Stamped]:
        """Return the events when the clock moves to ``now``, in order for each key."""
        self._now = now
        if not self._by_event:
            return self._move(now)
        return [] if self._early is None or self._same_time else [event for *_, event in sorted(self._early_due(now))]

    def _move(self, time: int) -> list[Stamped]:
        """Fire windows early, fire them, and remove them. At equal times early firing comes last.

        Sliding windows end for all keys before any of them fires early.
        """
        due: list[tuple[int, int, int, Stamped]] = []
        for place, window in enumerate(self._windows):
            rank = 0 if isinstance(self._strategy, SlidingWindowStrategy) else 2 * place
            if window.last <= time and not window.fired:
                window.fired = True
                due.append((window.last, rank, 0, window.trigger(window.last)))
            if window.last + self._lateness <= time:
                due.append((window.last + self._lateness, rank + 1, 0, window.clear(window.last)))
        gone = [window for window in self._windows if window.last + self._lateness <= time]
        early = self._early_due(time) if self._same_time else []
        self._over = time
        self._windows = [window for window in self._windows if window not in gone]
        due.sort(key=lambda item: item[:3])
        early.sort(key=lambda item: item[:3])
        told = due + early
        if not isinstance(self._strategy, SlidingWindowStrategy):
            told.sort(key=lambda item: item[:3])
        return [event for *_, event in told]

    def _early_due(self, time: int) -> list[tuple[int, int, int, Stamped]]:
        due: list[tuple[int, int, int, Stamped]] = []
        for window in self._windows:
            if window.early is not None and window.early <= time:
                early_time = window.early if self._same_time else None
                at = early_time if isinstance(self._strategy, CountWindowStrategy) else window.last
                if not window.fired:
                    due.append((window.early, 2 * len(self._windows), window.waits, window.trigger(at)))
                window.early = None
        return due

    def _windows_of(self, key: Any, record: Any, time: int) -> list[Slow]:
        strategy = self._strategy
        if isinstance(strategy, CumulatingWindowStrategy):
            start = time - (time - strategy.offset) % strategy.cycle
            ends = range(start + strategy.slide, start + strategy.cycle + 1, strategy.slide)
            return [self._window(key, start, end) for end in ends if end > time]
        if isinstance(strategy, SlidingWindowStrategy):
            newest = time - (time - strategy.offset) % strategy.slide
            starts = range(newest, time - strategy.size, -strategy.slide)
            return [self._window(key, start, start + strategy.size) for start in starts]
        if isinstance(strategy, AssignedWindowStrategy):
            spans = dict.fromkeys(strategy.assigner.assign_windows(record, time))
            return [self._window(key, *span) for span in spans]
        if isinstance(strategy, SessionWindowStrategy):
            gap = strategy.gap if isinstance(strategy.gap, int) else strategy.gap(record)
            return [self._session(key, time, time + gap)]
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
        combine = {TimestampCombiner.EARLIEST: min, TimestampCombiner.LATEST: max}.get(self._strategy.timestamps)
        made = Slow(key, (span[0], span[1]), last, tuple([] for _ in range(self._inputs)), combine=combine)
        made.evictor = self._strategy.evictor
        return made

    def _session(self, key: Any, start: int, end: int) -> Slow:
        met = [w for w in self._windows if w.key == key and w.span[0] <= end and start <= w.span[1]]
        met.sort(key=lambda window: window.span)
        merged = self._new(key, min([start, *(w.span[0] for w in met)]), max([end, *(w.span[1] for w in met)]))
        if [window.span for window in met] == [merged.span]:
            return met[0]
        for window in met:
            self._windows.remove(window)
            merged.times += window.times
            merged.times_left += window.times_left
            for records, more in zip(merged.records, window.records, strict=True):
                records += more
        early = [w.early for w in met if w.early is not None]
        if early:
            self._wait(merged, min(early))
        return merged

    def _is_full(self, window: Slow) -> bool:
        is_full: bool = sum(map(len, window.records)) == self._strategy.size
        return is_full

    def _is_endless(self) -> bool:
        return not isinstance(self._strategy, TimedWindowStrategy)

    def _expect_early(self, window: Slow, timestamp: int) -> None:
        if self._early is None:
            return
        now = self._now
        if self._early.time_type is TimeType.EVENT:
            now = max(self._over, LONG_MIN if self._is_endless() else window.span[0])
            now = timestamp if now == LONG_MIN else now
        time = (now // self._early.interval + 1) * self._early.interval
        is_earlier = window.early is None or time < window.early
        if is_earlier and (time < window.last or not self._same_time):
            self._wait(window, time)

    def _wait(self, window: Slow, early: int) -> None:
        if window.early is None:
            self._waiting += 1
            window.waits = self._waiting
        window.early = early
