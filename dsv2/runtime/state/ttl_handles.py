"""Handles on states with a time to live: each value is kept beside the time (ms) from which on it is not there.

What has expired is never returned. It is removed by ``expire``, which finds the keys by their deadlines: an entry has
one, not after the first expiry of any value in it. Values that live longer meanwhile only make it come too early.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from dsv2.errors import InternalError
from dsv2.runtime.state.handles import Handle, default_maker
from dsv2.runtime.state.keyed_store import Domain, PagedKeyedStore
from dsv2.runtime.state.partition import PartitionState
from dsv2.runtime.state.timers import BatchTime
from dsv2.spi import KeyEntry
from dsv2.state import (
    AggregatingStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    ReducingStateDeclaration,
    StateDeclaration,
    TtlUpdate,
    ValueStateDeclaration,
)

__all__ = (
    "ExpiringAggregatingHandle",
    "ExpiringHandle",
    "ExpiringListHandle",
    "ExpiringMapHandle",
    "ExpiringReducingHandle",
    "ExpiringValueHandle",
    "EntryLookup",
    "ExpiryIndex",
    "expire",
)


EntryLookup: TypeAlias = Callable[[], KeyEntry]
"""Finds the entry of the current key."""


class ExpiryIndex:
    """The deadlines of the keys of one operator in one subtask."""

    __slots__ = ("_partition", "_store", "time")

    def __init__(self, store: PagedKeyedStore, partition: PartitionState, time: BatchTime) -> None:
        self._store = store
        self._partition = partition
        self.time = time

    def note(self, entry: KeyEntry, expiry: int) -> None:
        """A value of the current key, whose entry this is, now expires at ``expiry``."""
        deadlines = entry.get(Domain.EXPIRY)
        if deadlines is None or expiry < deadlines[0]:
            entry[Domain.EXPIRY] = [expiry]
            self._store.add_deadline(Domain.EXPIRY, self._partition.key, expiry)


def expire(store: PagedKeyedStore, handles: Iterable[ExpiringHandle], now: int) -> None:
    """Remove what has expired by ``now`` (ms), of every key."""
    for _, key in store.take_due(Domain.EXPIRY, now):
        entry = store.entry(key)
        left = [expiry for handle in handles if (expiry := handle.purge(entry, now)) is not None]
        if left:
            entry[Domain.EXPIRY] = [min(left)]
            store.add_deadline(Domain.EXPIRY, key, min(left))
        else:
            del entry[Domain.EXPIRY]


class ExpiringHandle(Handle, ABC):
    """What these handles share."""

    __slots__ = ("_duration", "_expiries", "_lookup", "_name", "_renews_on_read", "_time")

    def __init__(self, declaration: StateDeclaration, lookup: EntryLookup, expiries: ExpiryIndex) -> None:
        super().__init__(declaration)
        self._name = declaration.name
        self._lookup = lookup
        ttl = declaration.time_to_live
        if ttl is None:
            raise InternalError(f"{declaration} has no time to live.")
        self._duration = ttl.duration_ms
        self._renews_on_read = ttl.update is TtlUpdate.ON_READ_AND_WRITE
        self._expiries = expiries
        self._time = expiries.time

    def clear(self) -> None:
        """Remove everything."""
        _remove(self._lookup(), self._name)

    @abstractmethod
    def purge(self, entry: KeyEntry, now: int) -> int | None:
        """Remove what has expired by ``now`` (ms) from the state in ``entry``; when what is left expires first."""

    def _new_expiry(self, entry: KeyEntry) -> int:
        expiry = self._time.now_ms + self._duration
        self._expiries.note(entry, expiry)
        return expiry


class _ExpiringCell(ExpiringHandle):
    """One value, as a pair with its expiry."""

    __slots__ = ()

    def purge(self, entry: KeyEntry, now: int) -> int | None:
        """Remove the value if it has expired."""
        cell = entry.get(self._name)
        if cell is None:
            return None
        if cell[1] > now:
            expiry: int = cell[1]
            return expiry
        del entry[self._name]
        return None

    def _read(self) -> tuple[Any] | None:
        """The value in a tuple, if there is one."""
        entry = self._lookup()
        cell = entry.get(self._name)
        if cell is None or cell[1] <= self._time.now_ms:
            return None
        if self._renews_on_read:
            self._write(entry, cell[0])
        return (cell[0],)

    def _write(self, entry: KeyEntry, value: Any) -> None:
        entry[self._name] = value, self._new_expiry(entry)


class ExpiringValueHandle(_ExpiringCell):
    """``ValueState``."""

    __slots__ = ("_default",)

    def __init__(
        self, declaration: ValueStateDeclaration[Any, Any], lookup: EntryLookup, expiries: ExpiryIndex
    ) -> None:
        super().__init__(declaration, lookup, expiries)
        self._default = default_maker(declaration)

    def value(self) -> Any:
        """The value or the default."""
        found = self._read()
        return found[0] if found is not None else self._default()

    def update(self, value: Any) -> None:
        """Store ``value``."""
        if value is None:
            self.clear()
        else:
            self._write(self._lookup(), value)


class ExpiringReducingHandle(_ExpiringCell):
    """``ReducingState``."""

    __slots__ = ("_reduce",)

    def __init__(self, declaration: ReducingStateDeclaration[Any], lookup: EntryLookup, expiries: ExpiryIndex) -> None:
        super().__init__(declaration, lookup, expiries)
        self._reduce = declaration.reduce

    def get(self) -> Any:
        """The reduced value."""
        found = self._read()
        return found[0] if found is not None else None

    def add(self, value: Any) -> None:
        """Reduce with ``value``."""
        found = self._read()
        self._write(self._lookup(), value if found is None else self._reduce(found[0], value))


class ExpiringAggregatingHandle(_ExpiringCell):
    """``AggregatingState``."""

    __slots__ = ("_function",)

    def __init__(
        self, declaration: AggregatingStateDeclaration[Any, Any, Any], lookup: EntryLookup, expiries: ExpiryIndex
    ) -> None:
        super().__init__(declaration, lookup, expiries)
        self._function = declaration.function

    def get(self) -> Any:
        """The result."""
        found = self._read()
        return self._function.get_result(found[0]) if found is not None else None

    def add(self, value: Any) -> None:
        """Add to the accumulator."""
        found = self._read()
        accumulator = found[0] if found is not None else self._function.create_accumulator()
        self._write(self._lookup(), self._function.add(value, accumulator))


class ExpiringListHandle(ExpiringHandle):
    """``ListState``: a list of pairs of element and expiry."""

    __slots__ = ()

    def __init__(self, declaration: ListStateDeclaration[Any], lookup: EntryLookup, expiries: ExpiryIndex) -> None:
        super().__init__(declaration, lookup, expiries)

    def purge(self, entry: KeyEntry, now: int) -> int | None:
        """Remove the elements that have expired."""
        cells = [cell for cell in entry.get(self._name, ()) if cell[1] > now]
        if not cells:
            entry.pop(self._name, None)
            return None
        entry[self._name] = cells
        return _first_expiry(cells)

    def get(self) -> list[Any]:
        """The elements."""
        entry, now = self._lookup(), self._time.now_ms
        values = [value for value, expiry in entry.get(self._name, ()) if expiry > now]
        if values and self._renews_on_read:
            entry[self._name] = self._cells(entry, values)
        return values

    def add(self, value: Any) -> None:
        """Append ``value``."""
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        """Append ``values``."""
        if added := list(values):
            entry = self._lookup()
            entry.setdefault(self._name, []).extend(self._cells(entry, added))

    def update(self, values: Iterable[Any]) -> None:
        """Store ``values``."""
        if new := list(values):
            entry = self._lookup()
            entry[self._name] = self._cells(entry, new)
        else:
            self.clear()

    def _cells(self, entry: KeyEntry, values: Sequence[Any]) -> list[tuple[Any, int]]:
        expiry = self._new_expiry(entry)
        return [(value, expiry) for value in values]


class ExpiringMapHandle(ExpiringHandle):
    """``MapState``: a dict of pairs of value and expiry."""

    __slots__ = ()

    def __init__(self, declaration: MapStateDeclaration[Any, Any], lookup: EntryLookup, expiries: ExpiryIndex) -> None:
        super().__init__(declaration, lookup, expiries)

    def purge(self, entry: KeyEntry, now: int) -> int | None:
        """Remove the entries that have expired."""
        cells = {key: cell for key, cell in entry.get(self._name, {}).items() if cell[1] > now}
        if not cells:
            entry.pop(self._name, None)
            return None
        entry[self._name] = cells
        return _first_expiry(cells.values())

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of ``key``."""
        entry = self._lookup()
        cells = entry.get(self._name, {})
        cell = cells.get(key)
        if cell is None or cell[1] <= self._time.now_ms:
            return default
        if self._renews_on_read:
            cells[key] = cell[0], self._new_expiry(entry)
        return cell[0]

    def put(self, key: Any, value: Any) -> None:
        """Set the value of ``key``."""
        self.put_all({key: value})

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set many values."""
        if entries:
            entry = self._lookup()
            expiry = self._new_expiry(entry)
            entry.setdefault(self._name, {}).update((key, (value, expiry)) for key, value in entries.items())

    def remove(self, key: Any) -> None:
        """Remove ``key``."""
        entry = self._lookup()
        cells = entry.get(self._name, {})
        cells.pop(key, None)
        if not cells:
            _remove(entry, self._name)

    def contains(self, key: Any) -> bool:
        """Whether ``key`` is there."""
        return self.get(key, self) is not self

    def keys(self) -> list[Any]:
        """The keys."""
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        """The values."""
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values."""
        entry = self._lookup()
        items = self._live(entry)
        if items and self._renews_on_read:
            expiry = self._new_expiry(entry)
            entry[self._name] = {key: (value, expiry) for key, value in items}
        return items

    def is_empty(self) -> bool:
        """Whether there is no key."""
        return not len(self)

    def __contains__(self, key: object) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._live(self._lookup()))

    def _live(self, entry: KeyEntry) -> list[tuple[Any, Any]]:
        now = self._time.now_ms
        return [(key, value) for key, (value, expiry) in entry.get(self._name, {}).items() if expiry > now]


def _first_expiry(cells: Iterable[tuple[Any, int]]) -> int:
    return min(expiry for _, expiry in cells)


def _remove(entry: KeyEntry, name: str) -> None:
    """Remove a state, and with the last one the deadline, which would keep the entry from going."""
    entry.pop(name, None)
    if len(entry) == 1:
        entry.pop(Domain.EXPIRY, None)
