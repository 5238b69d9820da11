"""The current window: the implementation of ``WindowContext``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from dsv2.errors import ContractError, UndeclaredStateError
from dsv2.extension.window.contents import Contents
from dsv2.extension.window.contexts import WindowContext
from dsv2.extension.window.entry import STATES
from dsv2.extension.window.evictors import TimedRecord
from dsv2.spi import PartitionAccess
from dsv2.state import StateDeclaration
from dsv2.watermark.event_time import LONG_MAX


class CurrentWindow:
    """``WindowContext``. One object is reused for all windows."""

    __slots__ = ("_contents", "_handles", "_key", "_place", "_put_into", "_slot", "end_time", "start_time")

    def __init__(self, contents: Contents, states: Collection[StateDeclaration], key: PartitionAccess) -> None:
        """``states`` are the states that each window has."""
        self._put_into = contents.put
        self._key = key
        self._handles = {state.name: (state, key.new_handle(state, self._states)) for state in states}
        self._contents: dict[Any, Any] | None = None
        self._place: Any = None
        self._slot = 0
        self.start_time = self.end_time = -1

    @property
    def has_states(self) -> bool:
        """True if windows have states."""
        return bool(self._handles)

    def activate(self, contents: dict[Any, Any], place: Any, slot: int, start: int, end: int) -> None:
        """Switch to the window ``slot`` of the current key, ``[start, end)``, with the content ``contents[place]``."""
        self._contents = contents
        self._place = place
        self._slot = slot
        self.start_time = start
        self.end_time = end

    def deactivate(self) -> None:
        """Deactivate until the next ``activate``."""
        self._contents = None

    @property
    def described(self) -> str | None:
        """The bounds of the window, for errors. None if it has none."""
        return f"from {self.start_time} to {self.end_time} ms" if -1 < self.end_time <= LONG_MAX else None

    @property
    def content(self) -> Any:
        """The content of the window."""
        return self._active_contents()[self._place]

    def get_window_state(self, declaration: Any) -> Any:
        """The handle on a state of the window."""
        if isinstance(declaration, StateDeclaration) and declaration.name in self._handles:
            declared, handle = self._handles[declaration.name]
            if declared is declaration or declared.matches(declaration):
                return handle
        known = ", ".join(str(state) for state, _ in self._handles.values()) or "none"
        raise UndeclaredStateError(
            f"{declaration} is not declared as a window state (declared: {known}). Return its declaration from "
            f"use_window_states()."
        )

    def _put(self, record: Any, side: int) -> None:
        contents = self._active_contents()
        contents[self._place] = self._put_into(contents[self._place], record, side)

    def _states(self) -> dict[Any, Any]:
        self._active_contents()
        states: dict[Any, Any] = self._key.entry().setdefault(STATES, {}).setdefault(self._slot, {})
        return states

    def _active_contents(self) -> dict[Any, Any]:
        if self._contents is None:
            raise ContractError("There is no current window: a late record has no window.")
        return self._contents


class OneInputCurrentWindow(CurrentWindow):
    """``OneInputWindowContext``."""

    __slots__ = ()

    def put_record(self, record: Any) -> None:
        """Store ``record``."""
        self._put(record, 0)

    def get_all_records(self) -> list[Any]:
        """The records of the window."""
        return list(self.content)


class EvictedCurrentWindow(OneInputCurrentWindow):
    """``OneInputWindowContext`` of windows with an evictor, which keep timestamps."""

    __slots__ = ()

    def get_all_records(self) -> list[Any]:
        return [record for record, _ in self.content]

    def evict(self, choose: Callable[[Sequence[TimedRecord[Any]], WindowContext], Sequence[TimedRecord[Any]]]) -> None:
        """Keep the records that ``choose`` returns."""
        kept = choose([TimedRecord(*one) for one in self.content], self)
        self._active_contents()[self._place] = [(record, timestamp) for record, timestamp in kept]


class TwoInputCurrentWindow(CurrentWindow):
    """``TwoInputWindowContext``."""

    __slots__ = ()

    def put_record1(self, record: Any) -> None:
        """Store a record of the first input."""
        self._put(record, 0)

    def put_record2(self, record: Any) -> None:
        """Store a record of the second input."""
        self._put(record, 1)

    def get_all_records1(self) -> list[Any]:
        """The records of the first input in the window."""
        return list(self.content[0])

    def get_all_records2(self) -> list[Any]:
        """The records of the second input in the window."""
        return list(self.content[1])
