"""Windows that begin or end with a record (Kafka Streams ``SlidingWindows``)."""

from __future__ import annotations

from typing import Any

from dsv2.extension.window.entry import CONTENTS, RECORDS
from dsv2.extension.window.strategy import RecordWindowStrategy, TimeType
from dsv2.extension.window.windows import WindowEnvironment, Windows
from dsv2.spi import KeyEntry
from dsv2.watermark.event_time import LONG_MAX


class RecordWindows(Windows):
    """A window up to each record, and one after each record if there are records in it. All have the same size."""

    def __init__(self, strategy: RecordWindowStrategy, environment: WindowEnvironment) -> None:
        super().__init__(strategy, environment)
        self._size = strategy.difference + 1
        self._lateness = strategy.allowed_lateness

    def add(self, record: Any, side: int) -> None:
        """Put ``record`` into the windows of its time, and create those that it defines."""
        time, watermark, entry = self._time(), self._watermark(), self._current_entry()
        known: list[tuple[int, Any, int]] = entry.get(RECORDS, [])
        starts = [start for start in self._starts(time, known) if self._last(start) + self._lateness > watermark]
        if not starts or starts[0] > time:
            self._callbacks.on_late_record(record, side)
            return
        own = (time, record, side)
        for start in starts:
            self._add_to(entry, start, own, known, watermark)
        known.append(own)
        entry[RECORDS] = known
        self._timers.register_timer(self._needed_until(time))

    def on_timer(self, time: int, time_type: TimeType) -> None:
        """As ``Windows.on_timer``. Records that are in no window to come are forgotten."""
        super().on_timer(time, time_type)
        self._forget_records(time, time_type)

    def skip_timer(self, time: int, time_type: TimeType) -> None:
        """As ``Windows.skip_timer``, for records likewise."""
        super().skip_timer(time, time_type)
        self._forget_records(time, time_type)

    def _forget_records(self, time: int, time_type: TimeType) -> None:
        entry = self._current_entry()
        if time_type is self._time_type and RECORDS in entry:
            entry[RECORDS] = [one for one in entry[RECORDS] if self._needed_until(one[0]) > time]
            if not entry[RECORDS]:
                del entry[RECORDS]

    def _starts(self, time: int, known: list[tuple[int, Any, int]]) -> list[int]:
        """The windows that contain ``time``, and the one after it, in order."""
        times, size = {one for one, _, _ in known}, self._size
        after = {one + 1 for one in times if time - size <= one < time}
        up_to = {one - size + 1 for one in times | {time} if time <= one < time + size}
        own = {time + 1} if any(time < one <= time + size for one in times) else set[int]()
        return sorted(after | up_to | own)

    def _add_to(
        self, entry: KeyEntry, start: int, own: tuple[int, Any, int], known: list[tuple[int, Any, int]], watermark: int
    ) -> None:
        contents, last, records = entry.setdefault(CONTENTS, {}), self._last(start), [own]
        if start not in contents:
            contents[start] = self._contents.empty()
            self._register_end(last + 1)
            records = [*known, own]
        elif start > own[0]:
            return
        self._window.activate(contents, start, start, start, last + 1)
        for time, record, side in records:
            if start <= time <= last:
                if self._combine is not None:
                    self._stamp(entry, start, time)
                self._put(contents, start, record, side)
        if last <= watermark:
            self._fire(entry, start)
        else:
            self._expect_early(entry, start)

    def _last(self, start: int) -> int:
        return min(start + self._size - 1, LONG_MAX - 1)

    def _needed_until(self, time: int) -> int:
        """The time at which the window after a record is removed."""
        return self._expiry(self._last(time + 1) + 1)

    def _end_of(self, entry: KeyEntry, slot: int) -> int:
        return self._last(slot) + 1

    def _due(self, entry: KeyEntry, time: int) -> list[int]:
        ends = ((start, self._last(start)) for start in entry[CONTENTS])
        return [start for start, last in ends if time in (last, self._expiry(last + 1))]
