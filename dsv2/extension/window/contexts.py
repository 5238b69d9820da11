"""What window functions see of the window in hand (Flink ``WindowContext`` and its kin)."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, overload

from dsv2.state import (
    AggregatingState,
    AggregatingStateDeclaration,
    ListState,
    ListStateDeclaration,
    MapState,
    MapStateDeclaration,
    ReducingState,
    ReducingStateDeclaration,
    ValueState,
    ValueStateDeclaration,
)

__all__ = ("OneInputWindowContext", "TwoInputWindowContext", "WindowContext")

T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")
IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")


class WindowContext(Protocol):
    """The window in hand. Only for the callback that it is given to: the next one finds another window in it."""

    @property
    def start_time(self) -> int:
        """Where the window begins, in ms; -1 for one that is not cut by time."""

    @property
    def end_time(self) -> int:
        """Where it ends, in ms, and what begins there is not in it; -1 for one that is not cut by time.

        In ``on_record`` of a session, the end it would have if the record were alone; likewise ``start_time``.
        """

    @overload
    def get_window_state(self, declaration: ValueStateDeclaration[T, R], /) -> ValueState[T, R]: ...
    @overload
    def get_window_state(self, declaration: ListStateDeclaration[T], /) -> ListState[T]: ...
    @overload
    def get_window_state(self, declaration: MapStateDeclaration[K, V], /) -> MapState[K, V]: ...
    @overload
    def get_window_state(self, declaration: ReducingStateDeclaration[T], /) -> ReducingState[T]: ...
    @overload
    def get_window_state(
        self, declaration: AggregatingStateDeclaration[IN, ACC, OUT], /
    ) -> AggregatingState[IN, OUT]: ...
    def get_window_state(self, declaration: Any, /) -> Any:
        """The handle on a state that the window has for itself, and that goes with it, after ``on_clear``.

        It is that of the window in hand. Raises ``UndeclaredStateError`` if the function does not return
        ``declaration`` from ``use_window_states``.
        """


class OneInputWindowContext(WindowContext, Protocol[IN]):
    """The window in hand of a function with one input."""

    def put_record(self, record: IN, /) -> None:
        """Keep ``record`` in the window."""

    def get_all_records(self) -> list[IN]:
        """The records kept in the window, in the order they were put; the list is yours. Empty in ``on_clear``."""


class TwoInputWindowContext(WindowContext, Protocol[IN1, IN2]):
    """The window in hand of a function with two inputs, which it keeps apart."""

    def put_record1(self, record: IN1, /) -> None:
        """Keep a record of the first input in the window."""

    def put_record2(self, record: IN2, /) -> None:
        """Keep a record of the second input in the window."""

    def get_all_records1(self) -> list[IN1]:
        """The records of the first input that are kept in the window; the list is yours. Empty in ``on_clear``."""

    def get_all_records2(self) -> list[IN2]:
        """The records of the second input that are kept in the window; the list is yours. Empty in ``on_clear``."""
