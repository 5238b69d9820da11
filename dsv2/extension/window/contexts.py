"""The contexts through which window functions access the current window (Flink ``WindowContext``)."""

from __future__ import annotations

from typing import Protocol

from dsv2.base.type_variables import IN, IN1, IN2, T
from dsv2.state.declaration import ExpiringStateDeclaration


class WindowContext(Protocol):
    """The current window. Valid only during the callback, because the object is reused for other windows."""

    @property
    def start_time(self) -> int:
        """The start of the window in ms, or -1 if it is a global or count window."""

    @property
    def end_time(self) -> int:
        """The exclusive end of the window in ms, or -1 if it is a global or count window.

        In ``on_record`` of a session, ``start_time`` and ``end_time`` are those of a session with only this record.
        """

    def get_window_state(self, declaration: ExpiringStateDeclaration[T], /) -> T:
        """The handle on a state of the current window. The state is removed with the window, after ``on_clear``.

        Raises:
            UndeclaredStateError: The function does not return ``declaration`` from ``use_window_states``.
        """


class OneInputWindowContext(WindowContext, Protocol[IN]):
    """The current window of a function with one input."""

    def put_record(self, record: IN, /) -> None:
        """Store ``record`` in the window."""

    def get_all_records(self) -> list[IN]:
        """A copy of the records in the window, in the order they were put. Empty in ``on_clear``."""


class TwoInputWindowContext(WindowContext, Protocol[IN1, IN2]):
    """The current window of a function with two inputs, which are stored separately."""

    def put_record1(self, record: IN1, /) -> None:
        """Store a record of the first input in the window."""

    def put_record2(self, record: IN2, /) -> None:
        """Store a record of the second input in the window."""

    def get_all_records1(self) -> list[IN1]:
        """A copy of the records of the first input in the window. Empty in ``on_clear``."""

    def get_all_records2(self) -> list[IN2]:
        """A copy of the records of the second input in the window. Empty in ``on_clear``."""
