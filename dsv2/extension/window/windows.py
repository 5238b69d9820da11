"""The base class of the windows of one function in one subtask.

The first record creates the window and registers a timer for its end, or opens a pane. Further records only look up the
window.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dsv2.errors import ContractError, InternalError
from dsv2.extension.event_time import EventTimeManager
from dsv2.extension.window.callbacks import Callbacks
from dsv2.extension.window.contents import Contents
from dsv2.extension.window.current_window import CurrentWindow
from dsv2.extension.window.entry import CONTENTS, EARLY, ENDS, STATES, TIMES, TRIGGER
from dsv2.extension.window.strategy import EarlyFiring, TimestampCombiner, TimeType, WindowStrategy
from dsv2.extension.window.trigger_runner import Triggering
from dsv2.extension.window.triggers import TriggerResult
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import FailedCallbackError, KeyEntry, ProcessOne, partition_access
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN


class EarlyFirings:
    """The early firings of the windows of the current key. A window without new records does not fire early."""

    def __init__(self, early: EarlyFiring, ctx: Any, event_time: EventTimeManager) -> None:
        self.time_type = early.time_type
        self._interval = early.interval
        self._by_event = early.time_type is TimeType.EVENT
        self._timers = event_time if self._by_event else ctx.processing_time_manager
        self._ctx = ctx

    def expect(self, entry: KeyEntry, slot: int, start: int, end: int) -> None:
        """Register an early firing of the window ``slot``, which has a new record, unless it is after ``end``.

        It is due at the next multiple of the interval, in event time not before ``start``. The start of a session may
        have moved back since.
        """
        now, expected = self._timers.current_time(), entry.get(EARLY)
        known = None if expected is None else expected.get(slot)
        if known is not None and known - self._interval <= now:
            return
        if self._by_event:
            now = max(now, start)
            now = self._first_time() if now == LONG_MIN else now
        time = now - now % self._interval + self._interval
        if time >= end - 1 or (known is not None and time >= known):
            return
        entry.setdefault(EARLY, {})[slot] = time
        self._timers.register_timer(time)

    def due(self, entry: KeyEntry, time: int) -> list[int]:
        """The windows that fire early at ``time``. Empty if the timer fires because the input has ended."""
        expected = entry[EARLY]
        slots = [slot for slot, expected_time in expected.items() if expected_time == time]
        for slot in slots:
            del expected[slot]
        if not expected:
            del entry[EARLY]
        return slots if time <= self._timers.current_time() else []

    def _first_time(self) -> int:
        """The time of a record of a window without start, before the first watermark."""
        timestamp: int | None = self._ctx.timestamp
        return LONG_MIN if timestamp is None else timestamp


NEVER: Final = LONG_MAX + 1
"""The end of a window without end, which fires when the input has ended."""

_AFTER_ALL: Final = 1 << 64
"""Later than the end of any window."""

_PARTS = (CONTENTS, ENDS, EARLY, STATES, TRIGGER, TIMES)
_COMBINE = {TimestampCombiner.EARLIEST: min, TimestampCombiner.LATEST: max}


@dataclass(frozen=True, slots=True)
class WindowEnvironment:
    """The environment of windows: context, event time, kind of content, current window and callbacks."""

    ctx: Any
    event_time: EventTimeManager
    contents: Contents
    window: CurrentWindow
    callbacks: Callbacks


class Windows(ABC):
    """The windows of one strategy and the current key. ``slot`` is the start of a window, which identifies it."""

    _lateness = 0
    """The allowed lateness in ms."""

    def __init__(self, strategy: WindowStrategy, environment: WindowEnvironment) -> None:
        processing_time = environment.ctx.processing_time_manager
        early = strategy.early_firing
        self._time_type = strategy.time_type
        self._by_event = strategy.time_type is TimeType.EVENT
        self._timers = environment.event_time if self._by_event else processing_time
        self._early = None if early is None else EarlyFirings(early, environment.ctx, environment.event_time)
        trigger = strategy.trigger
        self._triggering = None if trigger is None else Triggering(trigger, environment.ctx, environment.event_time)
        self._combine = _COMBINE.get(strategy.timestamps)
        self._ctx = environment.ctx
        self._key = partition_access(environment.ctx.state_manager)
        self._current_entry = self._key.entry
        self._contents = environment.contents
        self._window = environment.window
        self._callbacks = environment.callbacks

    @abstractmethod
    def add(self, record: Any, side: int) -> None:
        """Put a record of the input ``side`` into its windows. Passes late records to the function."""

    def add_batch(self, batch: RecordBatch[Any], select: Callable[[Any], Any], add_one: ProcessOne) -> None:
        """Put records of the first input into their windows. See ``KeyedBatchFunction``."""
        for record, timestamp in batch.pairs():
            add_one(record, timestamp)

    def on_timer(self, time: int, time_type: TimeType) -> None:
        """Handle a timer of the current key."""
        entry = self._current_entry()
        if self._triggering is not None:
            for slot in self._triggering.due(entry, time, time_type):
                self._decide_at(entry, slot, time, time_type)
        if time_type is self._time_type and CONTENTS in entry:
            for slot in self._due(entry, time):
                last = self._end_of(entry, slot) - 1 if self._lateness else time
                if self._triggering is None and last == time:
                    self._fire(entry, slot)
                if self._expiry(last + 1) == time:
                    self._remove(entry, slot)
        if self._early is not None and time_type is self._early.time_type and EARLY in entry:
            for slot in self._early.due(entry, time):
                if self._end_of(entry, slot) - 1 > self._timers.current_time():  # otherwise it fires at its end anyway
                    self._fire(entry, slot)

    def skip_timer(self, time: int, time_type: TimeType) -> None:
        """Remove the windows of the current key that a timer has failed to fire.

        Early firings and timers of triggers are given up.
        """
        entry = self._current_entry()
        if self._triggering is not None:
            self._triggering.skip(entry, time, time_type)
        if time_type is self._time_type and CONTENTS in entry:
            for slot in self._due(entry, time):
                self._forget(entry, slot, _PARTS)
        if self._early is not None and time_type is self._early.time_type and EARLY in entry:
            self._early.due(entry, time)

    def on_pane_due(self, slot: int) -> None:
        """Handle the end of the window ``slot`` for all keys, or the end of its allowed lateness."""
        raise InternalError(f"{type(self).__name__} has no panes.")

    def _due(self, entry: KeyEntry, time: int) -> list[int]:
        """The windows of the current key that are due at ``time``.

        At their last ms they are fired, and after the allowed lateness removed.
        """
        raise InternalError(f"{type(self).__name__} registers no timers.")

    @abstractmethod
    def _end_of(self, entry: KeyEntry, slot: int) -> int:
        """The exclusive end of a window, or ``NEVER``."""

    def _begin_of(self, slot: int) -> int:
        """The start of a window, or ``LONG_MIN``."""
        return slot

    def _output_time(self, entry: KeyEntry, slot: int) -> int | None:
        """The timestamp of the output of a window."""
        time: int | None = None if self._combine is None else entry.get(TIMES, {}).get(slot)
        return self._last_time(entry, slot) if time is None else time

    def _last_time(self, entry: KeyEntry, slot: int) -> int | None:
        """The timestamp of the output of a window that is not that of a record: its last ms."""
        return self._end_of(entry, slot) - 1

    def _stamp(self, entry: KeyEntry, slot: int, timestamp: int | None) -> None:
        """Combine the timestamp of a record with those of the others of its window."""
        assert self._combine is not None
        if timestamp is not None:
            times = entry.setdefault(TIMES, {})
            times[slot] = self._combine(times.get(slot, timestamp), timestamp)

    def _show(self, entry: KeyEntry, slot: int) -> None:
        self._window.activate(entry[CONTENTS], slot, slot, slot, self._end_of(entry, slot))

    def _time(self) -> int:
        """The time by which the current record is assigned to windows."""
        if not self._by_event:
            now: int = self._timers.current_time()
            return now
        timestamp: int | None = self._ctx.timestamp
        if timestamp is None:
            raise ContractError(
                "Windows in event time require records with timestamps, but this record has none. Put a generator "
                "before the window (EventTimeExtension.new_watermark_generator_builder), collect the record with "
                "collect_and_overwrite_timestamp, or use windows with TimeType.PROCESSING."
            )
        return timestamp

    def _register_end(self, end: int) -> None:
        """Register timers for the end of a window of the current key, if it is still to come, and its removal."""
        if not self._lateness or end - 1 > self._watermark():
            self._timers.register_timer(end - 1)
        if self._lateness:
            self._timers.register_timer(self._expiry(end))

    def _expiry(self, end: int) -> int:
        """The time at which a window is removed."""
        return min(end - 1 + self._lateness, LONG_MAX)

    def _watermark(self) -> int:
        """The time up to which windows have fired. In processing time only timers fire windows."""
        if not self._by_event:
            return LONG_MIN
        time: int = self._timers.current_time()
        return time if time < LONG_MAX else _AFTER_ALL

    def _put(self, contents: dict[Any, Any], place: Any, record: Any, side: int) -> None:
        """Put a record into the current window: by ``on_record``, or directly if it is not overridden."""
        if not self._callbacks.only_keeps[side]:
            self._callbacks.on_record(record, side)
            return
        try:
            contents[place] = self._contents.put(contents[place], record, side)
        except BaseException as error:
            raise FailedCallbackError(self._contents.callback) from error

    def _put_and_decide(self, entry: KeyEntry, slot: int, contents: dict[Any, Any], record: Any, side: int) -> None:
        """Put a record into the current window, which has a trigger, and let it decide."""
        assert self._triggering is not None
        place = self._place(slot)
        if self._triggering.revive(entry, slot):
            contents[place] = self._contents.empty()
        self._put(contents, place, record, side)
        self._react(entry, slot, self._triggering.on_record(entry, slot, self._bounds(entry, slot), record))

    def _decide_at(self, entry: KeyEntry, slot: int, time: int, time_type: TimeType) -> None:
        """Let the trigger of a window decide at one of its timers."""
        assert self._triggering is not None
        bounds = self._bounds(entry, slot)
        self._react(entry, slot, self._triggering.on_timer(entry, slot, bounds, time, time_type))

    def _react(self, entry: KeyEntry, slot: int, result: TriggerResult) -> None:
        assert self._triggering is not None
        if self._triggering.is_purged(entry, slot):
            return  # as in Flink, a window without content does not fire
        if result.fires:
            self._fire(entry, slot)
        if result.purges:
            self._content_of(entry, slot)[self._place(slot)] = None
            self._triggering.purge(entry, slot)
            self._forget(entry, slot, (TIMES,))

    def _place(self, slot: int) -> Any:
        """The key of the window's content in the dict that holds it."""
        return slot

    def _content_of(self, entry: KeyEntry, slot: int) -> dict[Any, Any]:
        """The dict that holds the content of the window."""
        contents: dict[Any, Any] = entry[CONTENTS]
        return contents

    def _bounds(self, entry: KeyEntry, slot: int) -> tuple[int, int]:
        """The start and the exclusive end of a window for its trigger."""
        return self._begin_of(slot), self._end_of(entry, slot)

    def _expect_early(self, entry: KeyEntry, slot: int) -> None:
        if self._early is not None:
            same_time = self._early.time_type is self._time_type
            self._early.expect(entry, slot, self._begin_of(slot), self._end_of(entry, slot) if same_time else NEVER)

    def _fire(self, entry: KeyEntry, slot: int) -> None:
        self._show(entry, slot)
        self._callbacks.on_trigger(self._output_time(entry, slot))

    def _remove(self, entry: KeyEntry, slot: int) -> None:
        if self._callbacks.clears:
            entry[CONTENTS][slot] = self._contents.empty()
            self._show(entry, slot)
            self._callbacks.on_clear(self._output_time(entry, slot))
        self._forget(entry, slot, _PARTS)

    @staticmethod
    def _forget(entry: KeyEntry, slot: int, parts: tuple[int, ...]) -> None:
        for part in parts:
            if part in entry:
                of_windows = entry[part]
                of_windows.pop(slot, None)
                if not of_windows:
                    del entry[part]
