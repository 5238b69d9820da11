"""Windows to which an assigner of the program assigns records."""

from __future__ import annotations

from typing import Any

from dsv2.checks.arguments import is_whole_number
from dsv2.errors import ContractError
from dsv2.extension.window.entry import CONTENTS
from dsv2.extension.window.strategy import AssignedWindowStrategy
from dsv2.extension.window.windows import WindowEnvironment, Windows
from dsv2.spi import FailedCallbackError, KeyEntry


class AssignedWindows(Windows):
    """The windows of an assigner. The slot of a window is its start and its exclusive end."""

    def __init__(self, strategy: AssignedWindowStrategy, environment: WindowEnvironment) -> None:
        super().__init__(strategy, environment)
        self._assigner = strategy.assigner
        self._lateness = strategy.allowed_lateness

    def add(self, record: Any, side: int) -> None:
        """Put ``record`` into its windows."""
        time, watermark, entry = self._time(), self._watermark(), self._current_entry()
        is_late = True
        for slot in self._assigned(record, time):
            if slot[1] - 1 + self._lateness > watermark:
                is_late = False
                self._add_to(entry, slot, record, side, watermark)
        if is_late and time + self._lateness <= watermark:  # otherwise it has no windows
            self._callbacks.on_late_record(record, side)

    def _add_to(self, entry: KeyEntry, slot: Any, record: Any, side: int, watermark: int) -> None:
        contents = entry.setdefault(CONTENTS, {})
        if slot not in contents:
            contents[slot] = self._contents.empty()
            self._register_end(slot[1])
        self._show(entry, slot)
        if self._combine is not None:
            self._stamp(entry, slot, self._ctx.timestamp)
        if self._triggering is not None:
            self._put_and_decide(entry, slot, contents, record, side)
            return
        self._put(contents, slot, record, side)
        if slot[1] - 1 <= watermark:
            self._fire(entry, slot)
        else:
            self._expect_early(entry, slot)

    def _assigned(self, record: Any, time: int) -> list[tuple[int, int]]:
        try:
            windows = list(dict.fromkeys(self._assigner.assign_windows(record, time)))
            for window in windows:
                start, end = window
                if not is_whole_number(start) or not is_whole_number(end) or start >= end:
                    raise ContractError(f"A window is a start and a later end in ms, not {window!r}.")
        except BaseException as error:
            raise FailedCallbackError(f"{type(self._assigner).__name__}.assign_windows") from error
        return windows

    def _begin_of(self, slot: Any) -> int:
        begin: int = slot[0]
        return begin

    def _end_of(self, entry: KeyEntry, slot: Any) -> int:
        end: int = slot[1]
        return end

    def _show(self, entry: KeyEntry, slot: Any) -> None:
        self._window.activate(entry[CONTENTS], slot, slot, *slot)

    def _due(self, entry: KeyEntry, time: int) -> list[Any]:
        return [slot for slot in entry[CONTENTS] if time in (slot[1] - 1, self._expiry(slot[1]))]
