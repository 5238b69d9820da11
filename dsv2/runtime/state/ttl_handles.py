"""Handles for states with a time to live. Each value is stored with its expiry time in ms.

Expired values are never returned. ``expire`` removes them and finds their keys by deadline. An entry has one deadline,
at or before the first expiry of its values. It is too early if a value was renewed after it was set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from dsv2.errors import ContractError
from dsv2.runtime.state.handles import Handle, default_maker
from dsv2.runtime.state.keyed_store import Domain, PagedKeyedStore
from dsv2.runtime.state.migrations import stored_name
from dsv2.runtime.state.partition import PartitionState
from dsv2.spi import KeyEntry
from dsv2.state import (
    AggregatingStateDeclaration,
    ReducingStateDeclaration,
    StateDeclaration,
    TtlUpdate,
    ValueStateDeclaration,
)
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN, EventTimeOfInputs

EntryLookup: TypeAlias = Callable[[], KeyEntry]
"""Finds the entry of the current key."""


class ExpiryClock(Protocol):
    """The time by which values expire."""

    @property
    def now_ms(self) -> int:
        """The current time, in ms."""


class CurrentStamp(Protocol):
    """The timestamp of the record or timer that is being processed."""

    timestamp: int | None


class EventClock:
    """Event time of the operator."""

    __slots__ = ("_current", "_event_time")

    def __init__(self, event_time: EventTimeOfInputs, current: CurrentStamp) -> None:
        self._event_time = event_time
        self._current = current

    @property
    def now_ms(self) -> int:
        """Event time. At the end of the input, nothing more expires."""
        now = self._event_time.current
        return now if now < LONG_MAX else LONG_MIN

    def ahead_ms(self) -> int:
        """Return by how much the current record or timer is ahead of event time, in ms; 0 if it is behind.

        Raises:
            ContractError: Neither the record has a timestamp, nor has event time begun.
        """
        now, timestamp = self.now_ms, self._current.timestamp
        if timestamp is None and self._event_time.current == LONG_MIN:
            raise ContractError(
                "A state with a time to live in event time cannot be updated: the record has no timestamp, and event "
                "time has not begun. Put a generator before the function "
                "(EventTimeExtension.new_watermark_generator_builder)."
            )
        return 0 if timestamp is None else max(0, timestamp - now)


class ExpiryIndex:
    """The expiry deadlines of the keys of one operator in one subtask, in one time ``domain``."""

    __slots__ = ("_partition", "_store", "domain", "time")

    def __init__(self, store: PagedKeyedStore, partition: PartitionState, domain: int, time: ExpiryClock) -> None:
        self._store = store
        self._partition = partition
        self.domain = domain
        self.time = time

    def new_expiry(self, entry: KeyEntry, duration_ms: int) -> int:
        """Return when a value in the ``entry`` of the current key expires that is updated now, and register it."""
        expiry = self.time.now_ms + duration_ms
        deadlines = entry.get(self.domain)
        if deadlines is None or expiry < deadlines[0]:
            entry[self.domain] = [expiry]
            self._store.add_deadline(self.domain, self._partition.key, expiry)
        return expiry

    def expire(self, handles: Sequence[ExpiringHandle]) -> None:
        """Remove the values of all keys that have expired."""
        now, domain, store = self.time.now_ms, self.domain, self._store
        for _, key in store.take_due(domain, now):
            entry = store.entry(key)
            left = [expiry for handle in handles if (expiry := handle.purge(entry, now)) is not None]
            if left:
                entry[domain] = [min(left)]
                store.add_deadline(domain, key, min(left))
            else:
                del entry[domain]


class EventExpiryIndex(ExpiryIndex):
    """Those in event time: the time of an update may be ahead of it."""

    __slots__ = ("_clock",)

    def __init__(self, store: PagedKeyedStore, partition: PartitionState, clock: EventClock) -> None:
        super().__init__(store, partition, Domain.EVENT_EXPIRY, clock)
        self._clock = clock

    def new_expiry(self, entry: KeyEntry, duration_ms: int) -> int:
        """Return when a value expires that is updated at the time of the current record."""
        return super().new_expiry(entry, duration_ms + self._clock.ahead_ms())


class ExpiringHandle(Handle, ABC):
    """Base of the handles for states with a time to live."""

    __slots__ = ("_duration", "_expiries", "_lookup", "_name", "_renews_on_read", "_time")

    def __init__(self, declaration: StateDeclaration, lookup: EntryLookup, expiries: ExpiryIndex) -> None:
        super().__init__(declaration)
        self._name = stored_name(declaration)
        self._lookup = lookup
        ttl = declaration.time_to_live
        assert ttl is not None
        self._duration = ttl.duration_ms
        self._renews_on_read = ttl.update is TtlUpdate.ON_READ_AND_WRITE
        self._expiries = expiries
        self._time = expiries.time

    def clear(self) -> None:
        """Remove the value."""
        self._remove(self._lookup())

    @abstractmethod
    def purge(self, entry: KeyEntry, now: int) -> int | None:
        """Remove values in ``entry`` that have expired at ``now`` (ms). Return the first expiry of the rest."""

    def _new_expiry(self, entry: KeyEntry) -> int:
        return self._expiries.new_expiry(entry, self._duration)

    def _remove(self, entry: KeyEntry) -> None:
        """Remove the state. After the last one, remove the deadline too, so that the entry can be dropped."""
        entry.pop(self._name, None)
        if len(entry) == 1:
            entry.pop(self._expiries.domain, None)


class _ExpiringCell(ExpiringHandle):
    """A state with one value, stored as a pair (value, expiry)."""

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
        """The value in a tuple, or None."""
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
        """Return the value or the default."""
        found = self._read()
        return found[0] if found is not None else self._default()

    def update(self, value: Any) -> None:
        """Store ``value``."""
        if value is None:
            self.clear()
        else:
            self._write(self._lookup(), value)

    def update_with(self, function: Callable[[Any], Any]) -> Any:
        """Store ``function(value())`` and return it."""
        value = function(self.value())
        self.update(value)
        return value


class ExpiringReducingHandle(_ExpiringCell):
    """``ReducingState``."""

    __slots__ = ("_reduce",)

    def __init__(self, declaration: ReducingStateDeclaration[Any], lookup: EntryLookup, expiries: ExpiryIndex) -> None:
        super().__init__(declaration, lookup, expiries)
        self._reduce = declaration.reduce

    def get(self) -> Any:
        """Return the reduced value, or None."""
        found = self._read()
        return found[0] if found is not None else None

    def add(self, value: Any) -> None:
        """Combine the reduced value with ``value``."""
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
        """Return the result of the accumulator, or None."""
        found = self._read()
        return self._function.get_result(found[0]) if found is not None else None

    def add(self, value: Any) -> None:
        """Add ``value`` to the accumulator."""
        found = self._read()
        accumulator = found[0] if found is not None else self._function.create_accumulator()
        self._write(self._lookup(), self._function.add(value, accumulator))


class ExpiringListHandle(ExpiringHandle):
    """``ListState``, stored as a list of pairs (element, expiry)."""

    __slots__ = ()

    def purge(self, entry: KeyEntry, now: int) -> int | None:
        """Remove the expired elements."""
        cells = [cell for cell in entry.get(self._name, ()) if cell[1] > now]
        if not cells:
            entry.pop(self._name, None)
            return None
        entry[self._name] = cells
        return _first_expiry(cells)

    def get(self) -> list[Any]:
        """Return the elements."""
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
        """Replace the elements by ``values``."""
        if new := list(values):
            entry = self._lookup()
            entry[self._name] = self._cells(entry, new)
        else:
            self.clear()

    def _cells(self, entry: KeyEntry, values: Sequence[Any]) -> list[tuple[Any, int]]:
        expiry = self._new_expiry(entry)
        return [(value, expiry) for value in values]


class ExpiringMapHandle(ExpiringHandle):
    """``MapState``, stored as a dict of pairs (value, expiry)."""

    __slots__ = ()

    def purge(self, entry: KeyEntry, now: int) -> int | None:
        """Remove the expired entries."""
        cells = {key: cell for key, cell in entry.get(self._name, {}).items() if cell[1] > now}
        if not cells:
            entry.pop(self._name, None)
            return None
        entry[self._name] = cells
        return _first_expiry(cells.values())

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of ``key``, or ``default``."""
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

    def update_with(self, key: Any, function: Callable[[Any], Any], default: Any = None) -> Any:
        """Put ``function(get(key, default))`` and return it."""
        value = function(self.get(key, default))
        self.put(key, value)
        return value

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set several values."""
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
            self._remove(entry)

    def contains(self, key: Any) -> bool:
        """Return whether the map contains ``key``."""
        return self.get(key, self) is not self

    def keys(self) -> list[Any]:
        """Return the keys."""
        return [key for key, _ in self.items()]

    def values(self) -> list[Any]:
        """Return the values."""
        return [value for _, value in self.items()]

    def items(self) -> list[tuple[Any, Any]]:
        """Return the keys and values."""
        entry = self._lookup()
        items = self._live(entry)
        if items and self._renews_on_read:
            expiry = self._new_expiry(entry)
            entry[self._name] = {key: (value, expiry) for key, value in items}
        return items

    def is_empty(self) -> bool:
        """Return whether the map is empty."""
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
