"""Keyed state as extensions use it: the entry of a key, and panes that hold the values of all keys in a window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from dsv2.errors import InternalError
from dsv2.state import StateDeclaration

KeyEntry: TypeAlias = dict[Any, Any]
"""Data of a key other than state values: deadlines, expiring values by state name, and data of extensions."""


class Pane(ABC):
    """The values of all keys in one window. ``deadline`` is the time in ms at which the pane is due."""

    slot: int
    deadline: int
    layout: tuple[int, ...]
    live: dict[Any, Any]

    @abstractmethod
    def take(self, key: Any, default: Any = None) -> Any:
        """Move the value of a ``key`` that is not in ``live`` there and return it; ``default`` if it has none."""

    @abstractmethod
    def take_all(self) -> dict[Any, Any]:
        """Load all values into ``live`` and return it."""


class Panes(ABC):
    """The panes of this subtask, by window."""

    get: Callable[[int], Pane | None]
    """Returns the pane of a window, or None."""

    @abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Iterate over a snapshot of the panes."""

    @abstractmethod
    def open(self, slot: int, deadline: int, by_event: bool, layout: tuple[int, ...] = ()) -> Pane:
        """Create a pane.

        Args:
            slot: The window.
            deadline: When the pane is due, in ms.
            by_event: Whether ``deadline`` is in event time, rather than processing time.
            layout: Data of the extension that is stored with the pane.
        """

    @abstractmethod
    def hasten(self, pane: Any, deadline: int) -> None:
        """Give ``pane`` an earlier deadline. (To postpone it, assign ``pane.deadline``.)"""

    @abstractmethod
    def drop(self, slot: int) -> None:
        """Remove the pane of a window."""


class PartitionAccess(ABC):
    """The runtime's state manager. Extensions set ``key`` before they call user code."""

    __slots__ = ()

    key: Any
    panes: Panes
    attempt: Callable[..., bool] | None
    """In ``on_pane_due``: ``attempt(action, *arguments)`` calls an action for the current key and returns whether it
    succeeded; otherwise its effects are undone. None: there is no error policy, so an error fails the job."""
    new_handle: Callable[[StateDeclaration, Callable[[], KeyEntry]], Any]
    """Creates a handle for a state whose values are in the dict that the callable returns at each access."""

    @abstractmethod
    def entry(self) -> KeyEntry:
        """Return the live entry of the current key, creating it if necessary."""


def partition_access(state_manager: object) -> PartitionAccess:
    """Return the state manager of a context as a ``PartitionAccess``.

    Raises:
        InternalError: ``state_manager`` is not the state manager of a runtime.
    """
    if not isinstance(state_manager, PartitionAccess):
        raise InternalError(f"{type(state_manager).__qualname__} is not the state manager of a runtime.")
    return state_manager
