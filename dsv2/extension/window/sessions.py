"""Session windows, which grow with their records and merge if they overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv2.checks.arguments import is_whole_number
from dsv2.errors import ContractError
from dsv2.extension.window.entry import CONTENTS, EARLY, ENDS, TIMES
from dsv2.extension.window.strategy import SessionWindowStrategy
from dsv2.extension.window.windows import WindowEnvironment, Windows
from dsv2.spi import FailedCallbackError, KeyEntry, last_of


class SessionWindows(Windows):
    """Session windows. The sessions of a key do not overlap, so their start identifies them."""

    def __init__(self, strategy: SessionWindowStrategy, environment: WindowEnvironment) -> None:
        super().__init__(strategy, environment)
        self._gap = strategy.gap
        self._lateness = strategy.allowed_lateness

    def add(self, record: Any, side: int) -> None:
        """Put ``record`` into its session, which may be new."""
        time = self._time()
        end = last_of(time, self._gap if isinstance(self._gap, int) else self._gap_of(record, self._gap)) + 1
        entry = self._current_entry()
        # Adjacent sessions merge too.
        overlapping = [(s, e) for s, e in entry.get(ENDS, {}).items() if s <= end and time <= e]
        if not overlapping and end - 1 + self._lateness <= self._watermark():
            self._callbacks.on_late_record(record, side)
            return
        slot = self._merge(entry, sorted(overlapping), time, end)
        contents = entry[CONTENTS]
        self._window.activate(contents, slot, slot, time, end)
        if self._combine is not None:
            self._stamp(entry, slot, self._ctx.timestamp)
        if self._triggering is not None:
            self._put_and_decide(entry, slot, contents, record, side)
            return
        self._put(contents, slot, record, side)
        if self._lateness and entry[ENDS][slot] - 1 <= self._watermark():
            self._fire(entry, slot)
        else:
            self._expect_early(entry, slot)

    @staticmethod
    def _gap_of(record: Any, extract: Callable[[Any], int]) -> int:
        try:
            gap = extract(record)
            if not is_whole_number(gap) or gap < 1:
                raise ContractError(f"The gap of a session is a whole number of at least 1 ms, not {gap!r}.")
        except BaseException as error:
            raise FailedCallbackError("gap") from error
        return gap

    def _merge(self, entry: KeyEntry, overlapping: list[tuple[int, int]], start: int, end: int) -> int:
        """Merge the ``overlapping`` sessions with that of a new record, ``[start, end)``. Returns the start."""
        start, end = min([start, *(s for s, _ in overlapping)]), max([end, *(e for _, e in overlapping)])
        if overlapping == [(start, end)]:
            return start
        windows, ends = entry.setdefault(CONTENTS, {}), entry.setdefault(ENDS, {})
        triggering = self._triggering
        purged = [s for s, _ in overlapping if triggering is not None and triggering.is_purged(entry, s)]
        contents = [content for s, _ in overlapping for content in [windows.pop(s)] if s not in purged]
        content = contents[0] if contents else self._contents.empty()
        for other in contents[1:]:
            content = self._contents.merge(content, other)
        for s, e in overlapping:
            del ends[s]
            # With lateness, the time may be that of another session.
            if e != end and not self._lateness and e - 1 not in entry.get(EARLY, {}).values():
                self._timers.delete_timer(e - 1)
        windows[start] = content
        ends[start] = end
        self._register_end(end)
        self._merge_times(entry.get(EARLY, {}), [s for s, _ in overlapping], start, min)
        if self._combine is not None:
            self._merge_times(entry.get(TIMES, {}), [s for s, _ in overlapping], start, self._combine)
        if triggering is not None:
            triggering.merge(entry, [s for s, _ in overlapping], start)
        return start

    @staticmethod
    def _merge_times(times: dict[int, int], merged: list[int], start: int, combine: Callable[..., int]) -> None:
        found = [times.pop(s) for s in merged if s in times]
        if found:
            times[start] = combine(found)

    def _end_of(self, entry: KeyEntry, slot: int) -> int:
        end: int = entry[ENDS][slot]
        return end

    def _due(self, entry: KeyEntry, time: int) -> list[int]:
        return [slot for slot, end in entry[ENDS].items() if time in (end - 1, self._expiry(end))]
