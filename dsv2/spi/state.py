"""Keyed state as extensions reach it: the entry of a key, and panes of what all keys have in one window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from dsv2.errors import InternalError
from dsv2.state import StateDeclaration

__all__ = ("KeyEntry", "Pane", "Panes", "PartitionAccess", "partition_access")

KeyEntry: TypeAlias = dict[Any, Any]
"""What one key has besides values of states: deadlines, by name what expires, and what extensions keep."""


class Pane(ABC):
    """What all keys have in one window. ``deadline``: when it is due, in ms."""

    slot: int
    deadline: int
    layout: tuple[int, ...]
    live: dict[Any, Any]

    @abstractmethod
    def take(self, key: Any, default: Any = None) -> Any:
        """The value of a ``key`` that is not in ``live``, moved there; ``default`` if there is none."""

    @abstractmethod
    def take_all(self) -> dict[Any, Any]:
        """``live``, with every value there is."""


class Panes(ABC):
    """The panes of this subtask, by window."""

    get: Callable[[int], Pane | None]
    """The pane of a window."""

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """All of them, as they are now."""

    @abstractmethod
    def open(self, slot: int, deadline: int, by_event: bool, layout: tuple[int, ...] = ()) -> Pane:
        """A new one. ``by_event``: ``deadline`` is in event time."""

    @abstractmethod
    def hasten(self, pane: Any, deadline: int) -> None:
        """Give one an earlier deadline. (A later one may just be put into it.)"""

    @abstractmethod
    def drop(self, slot: int) -> None:
        """Forget one."""


class PartitionAccess(ABC):
    """The state manager of a runtime. Extensions set ``key`` before they call user code."""

    __slots__ = ()

    key: Any
    panes: Panes
    new_handle: Callable[[StateDeclaration, Callable[[], KeyEntry]], Any]
    """Makes a handle on a state that is kept in what the callable returns at each access."""

    @abstractmethod
    def entry(self) -> KeyEntry:
        """The live entry of the current key, made if there is none."""


def partition_access(state_manager: object) -> PartitionAccess:
    """The state manager of a context, as extensions see it."""
    if not isinstance(state_manager, PartitionAccess):
        raise InternalError(f"{type(state_manager).__qualname__} is not the state manager of a runtime.")
    return state_manager
