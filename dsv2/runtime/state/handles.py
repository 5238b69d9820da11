"""Handles for states without a time to live.

A handle looks up the value of the current key at each access. The stored value is a plain value, list or dict. Empty
states are not stored.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Protocol

from dsv2.runtime.serde.references import Reference
from dsv2.state import (
    AggregatingStateDeclaration,
    ReducingStateDeclaration,
    StateDeclaration,
    ValueStateDeclaration,
)


class StateColumn(Protocol):
    """The values of one state, usually by key."""

    def get(self, key: Any, /) -> Any:
        """Return a value, or None."""

    def pop(self, key: Any, default: None, /) -> Any:
        """Remove a value if there is one."""

    def __getitem__(self, key: Any, /) -> Any: ...

    def __setitem__(self, key: Any, value: Any, /) -> None: ...

    def __contains__(self, key: Any, /) -> bool: ...


class CurrentKey(Protocol):
    """The key whose values handles access."""

    key: Any

    @property
    def touched(self) -> Container[Any]:
        """The keys whose values are loaded. Always the same object."""

    def touch(self) -> None:
        """Load the values of ``key``. Raises ``ContractError`` if there is no current key."""


_IMMUTABLE = (int, float, complex, str, bytes, type(None))


class Handle(Reference):
    """Base of all handles. A function's field that holds one refers to the state of the same name after a restart."""

    __slots__ = ("declaration",)

    reference_kind = "state"

    def __init__(self, declaration: StateDeclaration) -> None:
        self.declaration = declaration

    @property
    def reference_name(self) -> str:
        return self.declaration.name


class PlainHandle(Handle):
    """A view of the value of the ``current`` key in ``column``.

    Methods that are often called per record inline ``_key``.
    """

    __slots__ = ("_column", "_current", "_touched")

    def __init__(self, declaration: StateDeclaration, column: StateColumn, current: CurrentKey) -> None:
        super().__init__(declaration)
        self._column = column
        self._current = current
        self._touched = current.touched

    def clear(self) -> None:
        """Remove the value."""
        self._column.pop(self._key(), None)

    def _key(self) -> Any:
        key = self._current.key
        if key not in self._touched:
            self._current.touch()
        return key


class ValueHandle(PlainHandle):
    """``ValueState``."""

    __slots__ = ("_default",)

    def __init__(self, declaration: ValueStateDeclaration[Any, Any], column: StateColumn, current: CurrentKey) -> None:
        super().__init__(declaration, column, current)
        self._default = default_maker(declaration)

    def value(self) -> Any:
        """Return the value or the default."""
        key = self._current.key
        if key not in self._touched:
            self._current.touch()
        value = self._column.get(key)
        return value if value is not None else self._default()

    def update(self, value: Any) -> None:
        """Store ``value``."""
        if value is None:
            self.clear()
            return
        key = self._current.key
        if key not in self._touched:
            self._current.touch()
        self._column[key] = value

    def update_with(self, function: Callable[[Any], Any]) -> Any:
        """Store ``function(value())`` and return it."""
        key, column = self._current.key, self._column
        if key not in self._touched:
            self._current.touch()
        value = column.get(key)
        value = function(value if value is not None else self._default())
        if value is None:
            column.pop(key, None)
        else:
            column[key] = value
        return value


class ListHandle(PlainHandle):
    """``ListState``."""

    __slots__ = ()

    def get(self) -> list[Any]:
        """Return the elements."""
        return list(self._column.get(self._key()) or ())

    def add(self, value: Any) -> None:
        """Append ``value``."""
        key = self._key()
        values = self._column.get(key)
        if values is None:
            self._column[key] = [value]
        else:
            values.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Append ``values``."""
        if added := list(values):
            key = self._key()
            before = self._column.get(key)
            if before is None:
                self._column[key] = added
            else:
                before.extend(added)

    def update(self, values: Iterable[Any]) -> None:
        """Replace the elements by ``values``."""
        if new := list(values):
            self._column[self._key()] = new
        else:
            self.clear()


class MapHandle(PlainHandle):
    """``MapState`` and ``BroadcastState``."""

    __slots__ = ()

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of ``key``, or ``default``."""
        at = self._current.key
        if at not in self._touched:
            self._current.touch()
        entries = self._column.get(at)
        return default if entries is None else entries.get(key, default)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of ``key``."""
        at = self._key()
        entries = self._column.get(at)
        if entries is None:
            self._column[at] = {key: value}
        else:
            entries[key] = value

    def update_with(self, key: Any, function: Callable[[Any], Any], default: Any = None) -> Any:
        """Put ``function(get(key, default))`` and return it."""
        at = self._key()
        entries = self._column.get(at)
        value = function(default if entries is None else entries.get(key, default))
        if entries:
            entries[key] = value
        else:
            self._column[at] = {key: value}
        return value

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set several values."""
        if entries:
            at = self._key()
            before = self._column.get(at)
            if before is None:
                self._column[at] = dict(entries)
            else:
                before.update(entries)

    def remove(self, key: Any) -> None:
        """Remove ``key``."""
        at = self._key()
        entries = self._column.get(at)
        if entries is not None:
            entries.pop(key, None)
            if not entries:
                self._column.pop(at, None)

    def contains(self, key: Any) -> bool:
        """Return whether the map contains ``key``."""
        return key in self._entries()

    def keys(self) -> list[Any]:
        """Return the keys."""
        return list(self._entries())

    def values(self) -> list[Any]:
        """Return the values."""
        return list(self._entries().values())

    def items(self) -> list[tuple[Any, Any]]:
        """Return the keys and values."""
        return list(self._entries().items())

    def is_empty(self) -> bool:
        """Return whether the map is empty."""
        return not self._entries()

    def __contains__(self, key: object) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._entries())

    def _entries(self) -> dict[Any, Any]:
        entries: dict[Any, Any] | None = self._column.get(self._key())
        return {} if entries is None else entries


class ReducingHandle(PlainHandle):
    """``ReducingState``."""

    __slots__ = ("_reduce",)

    def __init__(self, declaration: ReducingStateDeclaration[Any], column: StateColumn, current: CurrentKey) -> None:
        super().__init__(declaration, column, current)
        self._reduce = declaration.reduce

    def get(self) -> Any:
        """Return the reduced value, or None."""
        return self._column.get(self._key())

    def add(self, value: Any) -> None:
        """Combine the reduced value with ``value``."""
        key, column = self._key(), self._column
        column[key] = self._reduce(column[key], value) if key in column else value


class AggregatingHandle(PlainHandle):
    """``AggregatingState``."""

    __slots__ = ("_function",)

    def __init__(
        self, declaration: AggregatingStateDeclaration[Any, Any, Any], column: StateColumn, current: CurrentKey
    ) -> None:
        super().__init__(declaration, column, current)
        self._function = declaration.function

    def get(self) -> Any:
        """Return the result of the accumulator, or None."""
        key, column = self._key(), self._column
        return self._function.get_result(column[key]) if key in column else None

    def add(self, value: Any) -> None:
        """Add ``value`` to the accumulator."""
        key, column = self._key(), self._column
        accumulator = column[key] if key in column else self._function.create_accumulator()
        column[key] = self._function.add(value, accumulator)


def default_maker(declaration: ValueStateDeclaration[Any, Any]) -> Callable[[], Any]:
    """Return a function that returns the default of ``declaration``, copied so that changes do not leak."""
    default = declaration.default
    if isinstance(default, _IMMUTABLE):
        return lambda: default
    return lambda: copy.deepcopy(default)
