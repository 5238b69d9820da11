"""Windows that do not end by time: the global window and count windows.

Each key has a timer at ``LONG_MAX``, which fires at the end of the input.
"""

from __future__ import annotations

from typing import Any, Final

from dsv2.extension.window.entry import CONTENTS, COUNT
from dsv2.extension.window.strategy import CountWindowStrategy
from dsv2.extension.window.windows import NEVER, WindowEnvironment, Windows
from dsv2.spi import KeyEntry
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN

_NO_TIME: Final = -1


class _UntimedWindows(Windows):
    def _end_of(self, entry: KeyEntry, slot: int) -> int:
        return NEVER

    def _begin_of(self, slot: int) -> int:
        return LONG_MIN

    def _show(self, entry: KeyEntry, slot: int) -> None:
        self._window.activate(entry[CONTENTS], slot, slot, _NO_TIME, _NO_TIME)

    def _due(self, entry: KeyEntry, time: int) -> list[int]:
        if time != LONG_MAX:
            return []  # it is a timer of early firing
        entry.pop(COUNT, None)
        return list(entry[CONTENTS])

    def _open(self, entry: KeyEntry, slot: int) -> None:
        entry.setdefault(CONTENTS, {})[slot] = self._contents.empty()
        self._timers.register_timer(LONG_MAX)

    def _add_to(self, entry: KeyEntry, slot: int, record: Any, side: int) -> None:
        self._show(entry, slot)
        if self._combine is not None:
            self._stamp(entry, slot, self._ctx.timestamp)
        if self._triggering is not None:
            self._put_and_decide(entry, slot, entry[CONTENTS], record, side)
            return
        self._put(entry[CONTENTS], slot, record, side)
        self._expect_early(entry, slot)

    def _bounds(self, entry: KeyEntry, slot: int) -> tuple[int, int]:
        return _NO_TIME, _NO_TIME


class GlobalWindow(_UntimedWindows):
    """The global window, which contains all records."""

    def add(self, record: Any, side: int) -> None:
        """Put ``record`` into the window."""
        entry = self._current_entry()
        if CONTENTS not in entry:
            self._open(entry, _NO_TIME)
        self._add_to(entry, _NO_TIME, record, side)


class CountWindows(_UntimedWindows):
    """Count windows, which contain the records of a key by number instead of time."""

    def __init__(self, strategy: CountWindowStrategy, environment: WindowEnvironment) -> None:
        super().__init__(strategy, environment)
        self._size = strategy.size
        self._slide = strategy.slide

    def add(self, record: Any, side: int) -> None:
        """Put ``record`` into the windows that are not full, and fire the window that it completes."""
        entry = self._current_entry()
        number = entry.get(COUNT, 0)
        if number % self._slide == 0:
            self._open(entry, number)
        for slot in list(entry.get(CONTENTS, ())):
            self._add_to(entry, slot, record, side)
        number += 1
        if number - self._size in entry.get(CONTENTS, ()):
            self._close(entry, number - self._size)
        if number % self._slide or CONTENTS in entry:
            entry[COUNT] = number
        else:
            entry.pop(COUNT, None)  # no windows remain, so the count restarts at 0

    def _last_time(self, entry: KeyEntry, slot: int) -> int | None:
        timestamp: int | None = self._ctx.timestamp  # of the record that completes it
        return timestamp

    def _close(self, entry: KeyEntry, slot: int) -> None:
        self._fire(entry, slot)
        self._remove(entry, slot)
        if CONTENTS not in entry:
            self._timers.delete_timer(LONG_MAX)
