"""Runs the trigger of windows: its state, its timers, and what it decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dsv2.errors import ContractError
from dsv2.extension.event_time import EventTimeManager
from dsv2.extension.window.entry import TRIGGER
from dsv2.extension.window.strategy import TimeType
from dsv2.extension.window.triggers import TriggerResult, WindowTrigger
from dsv2.spi import FailedCallbackError, KeyEntry

# The cell of a window: the state of the trigger, its event timers, its processing timers, and whether it is purged.
_STATE, _EVENT, _PROCESSING, _PURGED = range(4)
_TIMERS = {TimeType.EVENT: _EVENT, TimeType.PROCESSING: _PROCESSING}
_CALLBACKS = {TimeType.EVENT: "on_event_time", TimeType.PROCESSING: "on_processing_time"}


class _TriggerContext:
    """``TriggerContext``. One object is reused for all windows."""

    def __init__(self, ctx: Any, event_time: EventTimeManager) -> None:
        self._managers: dict[TimeType, Any] = {
            TimeType.EVENT: event_time,
            TimeType.PROCESSING: ctx.processing_time_manager,
        }
        self.cell: list[Any] = []
        self.start_time = self.end_time = -1

    @property
    def state(self) -> Any:
        return self.cell[_STATE]

    @state.setter
    def state(self, value: Any) -> None:
        self.cell[_STATE] = value

    @property
    def current_event_time(self) -> int:
        time: int = self._managers[TimeType.EVENT].current_time()
        return time

    @property
    def current_processing_time(self) -> int:
        time: int = self._managers[TimeType.PROCESSING].current_time()
        return time

    def register_event_timer(self, timestamp: int) -> None:
        self._register(TimeType.EVENT, timestamp)

    def register_processing_timer(self, timestamp: int) -> None:
        self._register(TimeType.PROCESSING, timestamp)

    def delete_event_timer(self, timestamp: int) -> None:
        self._delete(TimeType.EVENT, timestamp)

    def delete_processing_timer(self, timestamp: int) -> None:
        self._delete(TimeType.PROCESSING, timestamp)

    def _register(self, time_type: TimeType, timestamp: int) -> None:
        timers = self.cell[_TIMERS[time_type]]
        if timestamp not in timers:
            self._managers[time_type].register_timer(timestamp)
            timers.append(timestamp)

    def _delete(self, time_type: TimeType, timestamp: int) -> None:
        timers = self.cell[_TIMERS[time_type]]
        if timestamp in timers:  # the timer of the key stays, because another window may have the same
            timers.remove(timestamp)


class Triggering:
    """The trigger of the windows of one strategy and the current key."""

    def __init__(self, trigger: WindowTrigger[Any], ctx: Any, event_time: EventTimeManager) -> None:
        self._trigger = trigger
        self._ctx = ctx
        self._window = _TriggerContext(ctx, event_time)

    def revive(self, entry: KeyEntry, slot: int) -> bool:
        """Create the cell of a new window. Return whether the window ``slot`` was purged and now gets a record."""
        cell = entry.setdefault(TRIGGER, {}).setdefault(slot, [None, [], [], False])
        was_purged, cell[_PURGED] = cell[_PURGED], False
        return bool(was_purged)

    def is_purged(self, entry: KeyEntry, slot: int) -> bool:
        """Return whether the window has been purged and has no new record."""
        return TRIGGER in entry and slot in entry[TRIGGER] and bool(entry[TRIGGER][slot][_PURGED])

    def purge(self, entry: KeyEntry, slot: int) -> None:
        """Note that the window has no content."""
        entry[TRIGGER][slot][_PURGED] = True

    def on_record(self, entry: KeyEntry, slot: int, bounds: tuple[int, int], record: Any) -> TriggerResult:
        """Return what the trigger decides after ``record`` was put into a window, which has the given bounds."""
        return self._call("on_record", entry[TRIGGER][slot], bounds, record, self._ctx.timestamp)

    def due(self, entry: KeyEntry, time: int, time_type: TimeType) -> list[int]:
        """Return the windows with a timer at ``time``."""
        place = _TIMERS[time_type]
        return [slot for slot, cell in entry.get(TRIGGER, {}).items() if time in cell[place]]

    def skip(self, entry: KeyEntry, time: int, time_type: TimeType) -> None:
        """Remove the timers at ``time`` from all windows."""
        for slot in self.due(entry, time, time_type):
            entry[TRIGGER][slot][_TIMERS[time_type]].remove(time)

    def due_until(self, entry: KeyEntry, slot: int, time: int, time_type: TimeType) -> list[int]:
        """Return the timers of a window up to ``time``, in order."""
        cell = entry.get(TRIGGER, {}).get(slot)
        return [] if cell is None else sorted(timer for timer in cell[_TIMERS[time_type]] if timer <= time)

    def on_timer(
        self, entry: KeyEntry, slot: int, bounds: tuple[int, int], time: int, time_type: TimeType
    ) -> TriggerResult:
        """Return what the trigger decides at a timer of a window, which is removed."""
        cell = entry[TRIGGER][slot]
        cell[_TIMERS[time_type]].remove(time)
        return self._call(_CALLBACKS[time_type], cell, bounds, time)

    def merge(self, entry: KeyEntry, merged: Sequence[int], into: int) -> None:
        """Merge the cells of the sessions ``merged`` to that of the session ``into``."""
        cells = entry.get(TRIGGER, {})
        found = [cells.pop(slot) for slot in merged if slot in cells]
        if len(found) == 1:
            cells[into] = found[0]
        elif found:
            state = self._attributed("merge", self._trigger.merge, [cell[_STATE] for cell in found])
            timers = (sorted({time for cell in found for time in cell[place]}) for place in (_EVENT, _PROCESSING))
            cells[into] = [state, *timers, all(cell[_PURGED] for cell in found)]

    def _call(self, callback: str, cell: list[Any], bounds: tuple[int, int], *args: Any) -> TriggerResult:
        window = self._window
        window.cell, (window.start_time, window.end_time) = cell, bounds
        result: TriggerResult = self._attributed(callback, self._decide, callback, *args, window)
        return result

    def _decide(self, callback: str, *args: Any) -> TriggerResult:
        result: object = getattr(self._trigger, callback)(*args)
        if not isinstance(result, TriggerResult):
            raise ContractError(f"{type(self._trigger).__name__}.{callback} returned {result!r}, not a TriggerResult.")
        return result

    def _attributed(self, callback: str, action: Callable[..., Any], *args: Any) -> Any:
        try:
            return action(*args)
        except BaseException as error:
            raise FailedCallbackError(f"{type(self._trigger).__name__}.{callback}") from error
