"""The window in hand, as window functions see it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from dsv2.errors import ContractError, UndeclaredStateError
from dsv2.extension.window.contents import Contents
from dsv2.extension.window.entry import CONTENTS, STATES, Entry, KeyInHand
from dsv2.state import StateDeclaration

__all__ = ("OneInputWindowInHand", "TwoInputWindowInHand", "WindowInHand")


class WindowInHand:
    """``WindowContext``. One object shows one window after the other."""

    __slots__ = ("_entry", "_handles", "_puts", "_slot", "end_time", "start_time")

    def __init__(self, contents: Contents, states: Collection[StateDeclaration], key: KeyInHand) -> None:
        """``states``: what each window has for itself."""
        self._puts = contents.puts
        self._handles = {state.name: (state, key.new_handle(state, self._states)) for state in states}
        self._entry: Entry | None = None
        self._slot = 0
        self.start_time = self.end_time = -1

    def show(self, entry: Entry, slot: int, start: int, end: int) -> None:
        """Be the window that is kept under ``slot`` in ``entry``, and say that it is ``[start, end)``."""
        self._entry = entry
        self._slot = slot
        self.start_time = start
        self.end_time = end

    def put_down(self) -> None:
        """Be none, until the next ``show``."""
        self._entry = None

    @property
    def content(self) -> Any:
        """What the window holds."""
        return self._in_hand()[CONTENTS][self._slot]

    def get_window_state(self, declaration: Any) -> Any:
        """The handle on a state of the window."""
        if isinstance(declaration, StateDeclaration) and declaration.name in self._handles:
            declared, handle = self._handles[declaration.name]
            if declared is declaration or declared.matches(declaration):
                return handle
        known = ", ".join(str(state) for state, _ in self._handles.values()) or "none"
        raise UndeclaredStateError(
            f"{declaration} is not declared as a state of windows (declared: {known}). Return its declaration from "
            f"use_window_states()."
        )

    def _put(self, record: Any, side: int) -> None:
        contents = self._in_hand()[CONTENTS]
        contents[self._slot] = self._puts[side](record, contents[self._slot])

    def _states(self) -> dict[Any, Any]:
        states: dict[Any, Any] = self._in_hand().setdefault(STATES, {}).setdefault(self._slot, {})
        return states

    def _in_hand(self) -> Entry:
        if self._entry is None:
            raise ContractError("There is no window in hand here: a late record has none.")
        return self._entry


class OneInputWindowInHand(WindowInHand):
    """``OneInputWindowContext``."""

    __slots__ = ()

    def put_record(self, record: Any) -> None:
        """Keep ``record``."""
        self._put(record, 0)

    def get_all_records(self) -> list[Any]:
        """The records kept."""
        return list(self.content)


class TwoInputWindowInHand(WindowInHand):
    """``TwoInputWindowContext``."""

    __slots__ = ()

    def put_record1(self, record: Any) -> None:
        """Keep a record of the first input."""
        self._put(record, 0)

    def put_record2(self, record: Any) -> None:
        """Keep a record of the second input."""
        self._put(record, 1)

    def get_all_records1(self) -> list[Any]:
        """The records kept of the first input."""
        return list(self.content[0])

    def get_all_records2(self) -> list[Any]:
        """The records kept of the second input."""
        return list(self.content[1])
