"""Tumbling, sliding and cumulating windows.

They start and end at the same time for all keys, so the contents of all keys in one window are stored in a pane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv2.errors import ContractError
from dsv2.extension.window.contents import NOTHING
from dsv2.extension.window.entry import EARLY, STATES, TIMES, TRIGGER
from dsv2.extension.window.strategy import CumulatingWindowStrategy, SlidingWindowStrategy
from dsv2.extension.window.windows import WindowEnvironment, Windows
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import FailedCallbackError, FailedRecordError, KeyEntry, Pane, ProcessOne, last_of
from dsv2.watermark.event_time import LONG_MAX

_ABSENT: Any = object()


class TimeWindows(Windows):
    """Tumbling and sliding windows. The slide of tumbling windows is their size."""

    _cumulates = False
    """True if the start of a window is not its slot."""

    def __init__(self, strategy: SlidingWindowStrategy, environment: WindowEnvironment) -> None:
        super().__init__(strategy, environment)
        self._size = strategy.size
        self._slide = strategy.slide
        self._offset = strategy.offset
        self._lateness = strategy.allowed_lateness
        self._panes = self._key.panes
        has_trigger, stamps = self._triggering is not None, self._combine is not None
        self._has_entries = environment.window.has_states or self._early is not None or has_trigger or stamps
        self._clears_keys = self._callbacks.clears or self._has_entries
        # Whether a record that is not late only has to be put into its window.
        tumbles = strategy.size == strategy.slide and self._by_event and self._early is None and not self._cumulates
        self._takes_batches = (
            tumbles and strategy.evictor is None and not has_trigger and not stamps and self._callbacks.only_keeps[0]
        )

    def add(self, record: Any, side: int) -> None:
        """Put ``record`` into its windows."""
        time, watermark = self._time(), self._watermark()
        start = time - (time - self._offset) % self._slide
        is_late = True
        while start > time - self._size:
            if start + self._size - 1 + self._lateness > watermark:
                is_late = False
                self._add_to(start, record, side, watermark)
            start -= self._slide
        # A record in a gap between windows is late if its own time has passed.
        if is_late and time + self._lateness <= watermark:
            self._callbacks.on_late_record(record, side)

    def add_batch(self, batch: RecordBatch[Any], select: Callable[[Any], Any], add_one: ProcessOne) -> None:
        """As ``add``, but without further calls for a record whose window exists than ``select`` and the put."""
        if not self._takes_batches:
            super().add_batch(batch, select, add_one)
            return
        size, offset, watermark = self._size, self._offset, self._watermark()
        put, empty, absent, nothing = self._contents.puts[0], self._contents.empty, _ABSENT, NOTHING
        start = stop = 0  # no current window
        record = timestamp = None
        try:
            for record, timestamp in batch.pairs():
                if not start <= timestamp < stop:  # type: ignore[operator]  # _fail handles None
                    first = timestamp - (timestamp - offset) % size  # type: ignore[operator]
                    if first + size - 1 <= watermark:
                        add_one(record, timestamp)
                        continue
                    start, stop = first, first + size
                    pane = self._pane(start, watermark)
                    live, take = pane.live, pane.take
                key = select(record)
                content = live.get(key, absent)
                if content is absent:
                    content = take(key, absent)
                    if content is absent:
                        if key is None:
                            add_one(record, timestamp)  # refuses the key
                        content = empty()
                        if content is nothing:
                            live[key] = record
                            continue
                live[key] = put(content, record)
        except FailedRecordError:
            raise
        except ContractError as error:
            raise FailedRecordError(record) from error
        except BaseException as error:
            self._fail(error, record, timestamp, select, add_one)

    def on_pane_due(self, slot: int) -> None:
        """Fire the window ``slot``, and remove it unless it is kept for late records."""
        pane, last = self._existing(slot), last_of(slot, self._size)
        expiry = min(last + self._lateness, LONG_MAX)
        contents = pane.take_all()
        fires, expires = pane.deadline == last, pane.deadline == expiry
        if self._triggering is not None:
            fires = False
        if fires and self._callbacks.trigger_all is not None and self._combine is None:
            self._callbacks.trigger_all(contents, last)
            fires = False
        if fires or (expires and self._clears_keys):
            attempt = self._key.attempt
            for self._key.key in list(contents):
                if expires and self._triggering is not None:
                    self._decide_until(slot, expiry)
                if attempt is None:
                    self._end(contents, slot, fires, expires)
                elif not attempt(self._end, contents, slot, fires, expires) and expires:
                    self._drop(contents, slot)
        if expires:
            self._panes.drop(slot)
        else:
            pane.deadline = expiry

    def _end(self, contents: dict[Any, Any], slot: int, fires: bool, expires: bool) -> None:
        """Fire and remove the window ``slot`` of the current key."""
        key, last = self._key.key, last_of(slot, self._size)
        if fires:
            self._window.activate(contents, key, slot, self._begin_of(slot), last + 1)
            self._callbacks.on_trigger(self._result_time(slot, last))
        if expires:
            if self._callbacks.clears:
                contents[key] = self._contents.empty()
                self._window.activate(contents, key, slot, self._begin_of(slot), last + 1)
                self._callbacks.on_clear(self._result_time(slot, last))
            self._drop(contents, slot)

    def _result_time(self, slot: int, last: int) -> int | None:
        return last if self._combine is None else self._output_time(self._current_entry(), slot)

    def _drop(self, contents: dict[Any, Any], slot: int) -> None:
        """Remove the window ``slot`` of the current key."""
        del contents[self._key.key]
        if self._has_entries:
            self._forget(self._current_entry(), slot, (STATES, EARLY, TRIGGER, TIMES))

    def _decide_until(self, slot: int, last: int) -> None:
        """Let the trigger decide at its timers up to ``last``, because the window is removed before they fire."""
        assert self._triggering is not None
        attempt = self._key.attempt
        for time in self._triggering.due_until(self._current_entry(), slot, last, self._time_type):
            if attempt is None:
                self._decide(slot, time)
            else:
                attempt(self._decide, slot, time)

    def _decide(self, slot: int, time: int) -> None:
        self._decide_at(self._current_entry(), slot, time, self._time_type)

    def _place(self, slot: int) -> Any:
        return self._key.key

    def _content_of(self, entry: KeyEntry, slot: int) -> dict[Any, Any]:
        self._content(slot, self._key.key)
        return self._existing(slot).live

    def _add_to(self, start: int, record: Any, side: int, watermark: int) -> None:
        contents = self._pane(start, watermark).live
        key, last = self._key.key, last_of(start, self._size)
        if self._content(start, key) is _ABSENT:
            contents[key] = self._contents.empty()
        begin = self._begin_of(start) if self._cumulates else start
        self._window.activate(contents, key, start, begin, last + 1)
        if self._combine is not None:
            self._stamp(self._current_entry(), start, self._ctx.timestamp)
        if self._triggering is not None:
            self._put_and_decide(self._current_entry(), start, contents, record, side)
            return
        self._put(contents, key, record, side)
        if last <= watermark:
            self._callbacks.on_trigger(self._result_time(start, last))
        elif self._early is not None:
            self._expect_early(self._current_entry(), start)

    def _pane(self, start: int, watermark: int) -> Pane:
        pane = self._panes.get(start)
        if pane is None:
            last = last_of(start, self._size)
            deadline = last if last > watermark else min(last + self._lateness, LONG_MAX)
            pane = self._panes.open(start, deadline, self._by_event)
        return pane

    def _existing(self, start: int) -> Pane:
        pane = self._panes.get(start)
        assert pane is not None
        return pane

    def _content(self, start: int, key: Any) -> Any:
        """The content of ``key`` in a window, loaded into ``live``, or ``_ABSENT``."""
        pane = self._existing(start)
        content = pane.live.get(key, _ABSENT)
        return pane.take(key, _ABSENT) if content is _ABSENT else content

    def _show(self, entry: KeyEntry, slot: int) -> None:
        self._content(slot, self._key.key)
        begin, end = self._bounds(entry, slot)
        self._window.activate(self._existing(slot).live, self._key.key, slot, begin, end)

    def _end_of(self, entry: KeyEntry, slot: int) -> int:
        return last_of(slot, self._size) + 1

    def _fail(
        self,
        error: BaseException,
        record: Any,
        timestamp: int | None,
        select: Callable[[Any], Any],
        add_one: ProcessOne,
    ) -> None:
        """Raise the error for ``record``: from ``add_one``, unless the put raised ``error``."""
        try:
            hash(select(record))
            is_put = timestamp is not None
        except BaseException:
            is_put = False
        if not is_put:
            add_one(record, timestamp)
        failure = FailedCallbackError(self._contents.callback)
        failure.__cause__ = error
        raise FailedRecordError(record) from failure


class CumulatingWindows(TimeWindows):
    """Cumulating windows. The slot of a window is the start of its last step."""

    _cumulates = True

    def __init__(self, strategy: CumulatingWindowStrategy, environment: WindowEnvironment) -> None:
        super().__init__(strategy, environment)
        self._begin = strategy.start_of
        self._cycle = strategy.cycle

    def add(self, record: Any, side: int) -> None:
        """Put ``record`` into its windows, from the one that ends first."""
        time, watermark = self._time(), self._watermark()
        first = time - (time - self._offset) % self._slide
        is_late = True
        for slot in range(first, min(self._begin(first) + self._cycle, LONG_MAX), self._slide):
            if slot + self._size - 1 + self._lateness > watermark:
                is_late = False
                self._add_to(slot, record, side, watermark)
        if is_late:
            self._callbacks.on_late_record(record, side)

    def _begin_of(self, slot: int) -> int:
        return self._begin(slot)
