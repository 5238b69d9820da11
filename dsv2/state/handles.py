"""What ``StateManager.get_state`` returns: views on a state, always of the key in hand (Flink ``api.common.state.v2``).

A handle may be kept in a field of the function; it follows the current key. Flink gives every method a second,
asynchronous form (``asyncValue`` and so on); here they are not needed, because state is in memory while a key is
processed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol, overload

from typing_extensions import TypeVar

__all__ = ("AggregatingState", "BroadcastState", "ListState", "MapState", "ReducingState", "ValueState")

T = TypeVar("T")
D = TypeVar("D")
K = TypeVar("K")
V = TypeVar("V")
T_contra = TypeVar("T_contra", contravariant=True)
OUT_co = TypeVar("OUT_co", covariant=True)
R_co = TypeVar("R_co", covariant=True, default=T_contra | None)


class ValueState(Protocol[T_contra, R_co]):
    """One value. ``ValueState[int]``: ``value()`` is ``int | None``; ``ValueState[int, int]``: it has a default."""

    def value(self) -> R_co:
        """The value, or the default (None, if the declaration names no other) where nothing was stored.

        Call ``update`` after changing it in place.
        """

    def update(self, value: T_contra, /) -> None:
        """Store ``value``; None is the same as ``clear()``."""

    def clear(self) -> None:
        """Remove the value."""


class ListState(Protocol[T]):
    """A list of values, in the order in which they were added."""

    def get(self) -> list[T]:
        """The elements; the list is yours, changing it changes no state."""

    def add(self, value: T, /) -> None:
        """Append ``value``."""

    def add_all(self, values: Iterable[T], /) -> None:
        """Append every one of ``values``."""

    def update(self, values: Iterable[T], /) -> None:
        """Store ``values`` instead of what was there."""

    def clear(self) -> None:
        """Remove all elements."""


class _Entries(Protocol[K, V]):
    """What ``MapState`` and ``BroadcastState`` can do. ``in``, ``len`` and ``for key in state`` work as with a dict."""

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: D, /) -> V | D: ...
    def get(self, key: K, default: D | None = None, /) -> V | D | None:
        """The value of ``key``, or ``default``."""

    def put(self, key: K, value: V, /) -> None:
        """Set the value of ``key``."""

    def put_all(self, entries: Mapping[K, V], /) -> None:
        """Set the value of every key of ``entries``."""

    def remove(self, key: K, /) -> None:
        """Remove ``key``; nothing happens if it is not there."""

    def contains(self, key: K, /) -> bool:
        """Whether ``key`` has a value."""

    def keys(self) -> list[K]:
        """The keys of this moment, in the order in which they were first put."""

    def values(self) -> list[V]:
        """The values of this moment, in the order of the keys."""

    def items(self) -> list[tuple[K, V]]:
        """Keys and values of this moment (Flink's ``entries``)."""

    def is_empty(self) -> bool:
        """Whether there is no key."""

    def clear(self) -> None:
        """Remove all keys."""

    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[K]: ...
    def __len__(self) -> int: ...


class MapState(_Entries[K, V], Protocol[K, V]):
    """A map for each key of the stream. What is listed of it may be gone through while the map is changed."""


class BroadcastState(_Entries[K, V], Protocol[K, V]):
    """A map that each subtask has its own copy of, the same for all keys.

    It is up to the function to change all copies alike: by what comes from the broadcast input.
    """


class ReducingState(Protocol[T]):
    """The values added so far, reduced to one."""

    def get(self) -> T | None:
        """The reduced value; None if nothing was added."""

    def add(self, value: T, /) -> None:
        """Reduce what is there and ``value`` to one."""

    def clear(self) -> None:
        """Forget all values."""


class AggregatingState(Protocol[T_contra, OUT_co]):
    """The values added so far, aggregated to a result, maybe of another type."""

    def get(self) -> OUT_co | None:
        """The result; None if nothing was added."""

    def add(self, value: T_contra, /) -> None:
        """Add ``value`` to the accumulator."""

    def clear(self) -> None:
        """Forget all values."""
