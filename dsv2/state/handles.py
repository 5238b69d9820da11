"""State handles, which ``StateManager.get_state`` returns (Flink ``api.common.state.v2``).

A handle accesses the state of the current key and may be stored in a field of the function. Flink's asynchronous
methods (``asyncValue``) have no counterpart, because the state of a key is in memory while the key is processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, overload

from typing_extensions import TypeVar

from dsv2.base.type_variables import K, OUT_co, T, T_contra, V

D = TypeVar("D")
R_co = TypeVar("R_co", covariant=True, default=T | None)


class ValueState(Protocol[T, R_co]):
    """One value. ``value()`` of ``ValueState[int]`` is ``int | None``; ``ValueState[int, int]`` has a default."""

    def value(self) -> R_co:
        """The stored value, or the default of the declaration, which is None unless it is set.

        Call ``update`` after modifying the value in place.
        """

    def update(self, value: T, /) -> None:
        """Store ``value``. None is the same as ``clear()``."""

    def update_with(self, function: Callable[[R_co], T], /) -> T:
        """Store ``function(value())`` and return it. Faster than ``value`` and ``update``.

        If ``function`` raises an exception, the state does not change.
        """

    def clear(self) -> None:
        """Remove the value."""


class ListState(Protocol[T]):
    """A list of values, in the order in which they were added."""

    def get(self) -> list[T]:
        """A copy of the list."""

    def add(self, value: T, /) -> None:
        """Append ``value``."""

    def add_all(self, values: Iterable[T], /) -> None:
        """Append all ``values``."""

    def update(self, values: Iterable[T], /) -> None:
        """Replace the list with ``values``."""

    def clear(self) -> None:
        """Remove all elements."""


class _Entries(Protocol[K, V]):
    """The methods of ``MapState`` and ``BroadcastState``. ``in``, ``len`` and iteration work as for a dict."""

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: D, /) -> V | D: ...
    def get(self, key: K, default: D | None = None, /) -> V | D | None:
        """The value of ``key``, or ``default``."""

    def put(self, key: K, value: V, /) -> None:
        """Set the value of ``key``."""

    @overload
    def update_with(self, key: K, function: Callable[[V | None], V], /) -> V: ...
    @overload
    def update_with(self, key: K, function: Callable[[V], V], default: V, /) -> V: ...
    def update_with(self, key: K, function: Callable[[V], V], default: V | None = None, /) -> V:
        """Put ``function(get(key, default))`` and return it (Java ``Map.compute``). Faster than ``get`` and ``put``.

        If ``function`` raises an exception, the state does not change.
        """

    def put_all(self, entries: Mapping[K, V], /) -> None:
        """Set the value of every key of ``entries``."""

    def remove(self, key: K, /) -> None:
        """Remove ``key``. Does nothing if there is no such key."""

    def contains(self, key: K, /) -> bool:
        """Return whether ``key`` has a value."""

    def keys(self) -> list[K]:
        """A copy of the keys, in insertion order."""

    def values(self) -> list[V]:
        """A copy of the values, in the order of the keys."""

    def items(self) -> list[tuple[K, V]]:
        """A copy of the keys and values (Flink ``entries``)."""

    def is_empty(self) -> bool:
        """Return whether the map is empty."""

    def clear(self) -> None:
        """Remove all keys."""

    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[K]: ...
    def __len__(self) -> int: ...


class MapState(_Entries[K, V], Protocol[K, V]):
    """A map per key of the stream. It may be modified while ``keys()``, ``values()`` or ``items()`` is iterated."""


class BroadcastState(_Entries[K, V], Protocol[K, V]):
    """A map with a copy in each subtask, shared by all keys.

    The function must update all copies in the same way, based only on the broadcast input.
    """


class ReducingState(Protocol[T]):
    """The values added so far, reduced to one."""

    def get(self) -> T | None:
        """The reduced value, or None if no value was added."""

    def add(self, value: T, /) -> None:
        """Reduce the current value and ``value`` to one."""

    def clear(self) -> None:
        """Remove the value."""


class AggregatingState(Protocol[T_contra, OUT_co]):
    """The values added so far, aggregated to a result."""

    def get(self) -> OUT_co | None:
        """The result, or None if no value was added."""

    def add(self, value: T_contra, /) -> None:
        """Add ``value`` to the accumulator."""

    def clear(self) -> None:
        """Remove the value."""
