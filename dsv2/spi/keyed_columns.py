"""The keyed state of a function on tables, as a runtime sees it. ``dsv2.arrow`` implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any


class KeyedColumns(ABC):
    """The states and timers of all keys of a subtask."""

    @property
    @abstractmethod
    def keyed_state(self) -> Callable[..., Any]:
        """Returns a state: ``ArrowStates.keyed_state``."""

    @property
    @abstractmethod
    def event_timers(self) -> Any:
        """The timers in event time."""

    @property
    @abstractmethod
    def processing_timers(self) -> Any:
        """The timers in processing time."""

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of values and of keys with timers."""

    @property
    @abstractmethod
    def timers(self) -> int:
        """The number of keys with timers, in event time and in processing time."""

    @abstractmethod
    def keys(self) -> Iterable[Any]:
        """The keys that have a value or a timer."""

    @abstractmethod
    def expire(self) -> None:
        """Remove expired values."""

    @abstractmethod
    def fire(self, by_event: bool, time: int, call: Callable[[Any], None], *, last: bool = False) -> None:
        """Call ``call`` with the timers that are due at ``time`` ms, if there are any.

        Timers that are registered in the meantime and are due fire as well, unless it is the ``last`` call.
        """

    @abstractmethod
    def next_time(self, by_event: bool) -> int | None:
        """Return the time of the next timer in ms, or an earlier time; None if there is none."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """Return the state as built-in values and bytes; empty if there is none."""

    @abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Restore a ``snapshot``."""

    @abstractmethod
    def stored_tables(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tables in a ``snapshot``, each a ``StateTable``, by the name of their pages."""

    @abstractmethod
    def loader(self) -> Any:
        """Return a ``RowLoader`` for these columns."""
