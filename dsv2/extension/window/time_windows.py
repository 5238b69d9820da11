"""Tumbling and sliding windows: all of one size, each known by its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dsv2.extension.window.entry import CONTENTS, Entry
from dsv2.extension.window.strategy import SlidingWindowStrategy
from dsv2.extension.window.windows import Surroundings, Windows
from dsv2.functions import FailedCallbackError, FailedRecordError

__all__ = ("TimeWindows",)

_NONE: dict[int, Any] = {}
_ABSENT: Any = object()


class TimeWindows(Windows):
    """Tumbling windows are sliding windows that slide by their size."""

    def __init__(self, strategy: SlidingWindowStrategy, around: Surroundings) -> None:
        super().__init__(strategy, around)
        self._size = strategy.size
        self._slide = strategy.slide
        self._offset = strategy.offset
        self._lateness = strategy.allowed_lateness
        self._puts = self._contents.puts
        # Whether a record that finds its window has nothing to do but to go into it.
        tumbles = strategy.size == strategy.slide and not strategy.allowed_lateness and self._early is None
        self._short_way = [tumbles and only_keeps for only_keeps in self._callbacks.only_keeps]

    def add(self, record: Any, side: int) -> None:
        """Put ``record`` into the windows of its time."""
        time = self._time()
        start = time - (time - self._offset) % self._slide
        entry = self._entry_in_hand()
        if self._short_way[side] and start + self._size - 1 > self._watermark():
            self._put_alone(entry, start, record, side)
        else:
            self._add_to_each(entry, record, side, time, start)

    def add_run(
        self,
        records: list[Any],
        timestamps: list[int | None],
        select: Callable[[Any], Any],
        live: Mapping[Any, Entry],
        add_one: Callable[[Any, int | None], None],
    ) -> None:
        """As ``add``, in a loop with nothing to call for a record that finds its window but ``select`` and the put."""
        if not (self._short_way[0] and self._by_event):
            super().add_run(records, timestamps, select, live, add_one)
            return
        size, offset, put, none, absent = self._size, self._offset, self._puts[0], _NONE, _ABSENT
        for record, timestamp in zip(records, timestamps, strict=True):
            try:
                windows = live.get(select(record), none).get(CONTENTS, none)
                start = timestamp - (timestamp - offset) % size  # type: ignore[operator]
            except Exception:
                add_one(record, timestamp)  # fails in the same way, and says so
                continue
            content = windows.get(start, absent)
            if content is absent:
                add_one(record, timestamp)
                continue
            try:
                windows[start] = put(record, content)
            except Exception as error:
                raise FailedRecordError(record) from _failed(self._contents.callback, error)

    def _put_alone(self, entry: Entry, start: int, record: Any, side: int) -> None:
        """Put a record into the only window that it belongs to, which is neither late nor fires."""
        windows = entry.get(CONTENTS)
        if windows is None:
            windows = entry[CONTENTS] = {}
        content = windows.get(start, _ABSENT)
        if content is _ABSENT:
            content = self._contents.empty()
            self._timers.register_timer(start + self._size - 1)
        try:
            windows[start] = self._puts[side](record, content)
        except Exception as error:
            raise FailedCallbackError(self._contents.callback) from error

    def _add_to_each(self, entry: Entry, record: Any, side: int, time: int, start: int) -> None:
        watermark = self._watermark()
        is_late = True
        while start > time - self._size:
            last = start + self._size - 1
            if last + self._lateness > watermark:
                is_late = False
                self._add_to(entry, record, side, start, last, watermark)
            start -= self._slide
        # A record may also be in a gap between windows: then it is late if its time is over.
        if is_late and time + self._lateness <= watermark:
            self._callbacks.on_late_record(record, side)

    def _add_to(self, entry: Entry, record: Any, side: int, start: int, last: int, watermark: int) -> None:
        windows = entry.get(CONTENTS)
        if windows is None:
            windows = entry[CONTENTS] = {}
        if start not in windows:
            windows[start] = self._contents.empty()
            if last > watermark:
                self._timers.register_timer(last)
            if self._lateness:
                self._timers.register_timer(last + self._lateness)
        self._window.show(entry, start, start, last + 1)
        self._put(entry, start, record, side)
        if last <= watermark:
            self._fire(entry, start)
        else:
            self._expect_early(entry, start)

    def _end_of(self, entry: Entry, slot: int) -> int:
        return slot + self._size

    def _end_due(self, entry: Entry, time: int) -> None:
        windows = entry[CONTENTS]
        start = time + 1 - self._size
        if start in windows:
            self._window.show(entry, start, start, time + 1)
            self._callbacks.on_trigger(time + 1)
        if start - self._lateness in windows:
            self._remove(entry, start - self._lateness)


def _failed(callback: str, error: Exception) -> FailedCallbackError:
    failure = FailedCallbackError(callback)
    failure.__cause__ = error
    return failure
