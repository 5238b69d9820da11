"""Handles on states whose values stay until they are removed: views on an entry that is looked up at each access.

A state is in its entry under its name, as a plain value, list or dict, and only while it is not empty.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from dsv2.state import (
    AggregatingStateDeclaration,
    BroadcastStateDeclaration,
    ListStateDeclaration,
    MapStateDeclaration,
    ReducingStateDeclaration,
    StateDeclaration,
    ValueStateDeclaration,
)

__all__ = (
    "AggregatingHandle",
    "Handle",
    "Home",
    "ListHandle",
    "MapHandle",
    "ReducingHandle",
    "ValueHandle",
    "default_maker",
    "state_named",
)

Home: TypeAlias = Callable[[], dict[Any, Any]]
"""Finds the entry of this moment: of the current key, or of the subtask."""

_IMMUTABLE = (int, float, complex, str, bytes, type(None))


def state_named(name: str) -> Handle:
    raise NotImplementedError("only a name in pickles: FunctionFields answers with the states of its function")


class Handle:
    """What all handles share. A function that keeps one in a field finds the one of this name there after a restart."""

    __slots__ = ("_home", "_name", "declaration")

    def __init__(self, declaration: StateDeclaration, home: Home) -> None:
        self.declaration = declaration
        self._name = declaration.name
        self._home = home

    def __reduce__(self) -> tuple[Any, ...]:
        return state_named, (self._name,)

    def clear(self) -> None:
        """Remove everything."""
        self._home().pop(self._name, None)


class ValueHandle(Handle):
    """``ValueState``."""

    __slots__ = ("_default",)

    def __init__(self, declaration: ValueStateDeclaration[Any, Any], home: Home) -> None:
        super().__init__(declaration, home)
        self._default = default_maker(declaration)

    def value(self) -> Any:
        """The value or the default."""
        value = self._home().get(self._name)
        return value if value is not None else self._default()

    def update(self, value: Any) -> None:
        """Store ``value``."""
        if value is None:
            self.clear()
        else:
            self._home()[self._name] = value


class ListHandle(Handle):
    """``ListState``."""

    __slots__ = ()

    def __init__(self, declaration: ListStateDeclaration[Any], home: Home) -> None:
        super().__init__(declaration, home)

    def get(self) -> list[Any]:
        """The elements."""
        return list(self._home().get(self._name, ()))

    def add(self, value: Any) -> None:
        """Append ``value``."""
        entry = self._home()
        values = entry.get(self._name)
        if values is None:
            entry[self._name] = [value]
        else:
            values.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Append ``values``."""
        if added := list(values):
            self._home().setdefault(self._name, []).extend(added)

    def update(self, values: Iterable[Any]) -> None:
        """Store ``values``."""
        if new := list(values):
            self._home()[self._name] = new
        else:
            self.clear()


class MapHandle(Handle):
    """``MapState`` and ``BroadcastState``."""

    __slots__ = ()

    def __init__(
        self, declaration: MapStateDeclaration[Any, Any] | BroadcastStateDeclaration[Any, Any], home: Home
    ) -> None:
        super().__init__(declaration, home)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of ``key``."""
        return self._entries().get(key, default)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of ``key``."""
        entry = self._home()
        entries = entry.get(self._name)
        if entries is None:
            entry[self._name] = {key: value}
        else:
            entries[key] = value

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set many values."""
        if entries:
            self._home().setdefault(self._name, {}).update(entries)

    def remove(self, key: Any) -> None:
        """Remove ``key``."""
        entry = self._home()
        entries = entry.get(self._name)
        if entries is not None:
            entries.pop(key, None)
            if not entries:
                del entry[self._name]

    def contains(self, key: Any) -> bool:
        """Whether ``key`` is there."""
        return key in self._entries()

    def keys(self) -> list[Any]:
        """The keys."""
        return list(self._entries())

    def values(self) -> list[Any]:
        """The values."""
        return list(self._entries().values())

    def items(self) -> list[tuple[Any, Any]]:
        """Keys and values."""
        return list(self._entries().items())

    def is_empty(self) -> bool:
        """Whether there is no key."""
        return not self._entries()

    def __contains__(self, key: object) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._entries())

    def _entries(self) -> dict[Any, Any]:
        entries: dict[Any, Any] = self._home().get(self._name, {})
        return entries


class ReducingHandle(Handle):
    """``ReducingState``."""

    __slots__ = ("_reduce",)

    def __init__(self, declaration: ReducingStateDeclaration[Any], home: Home) -> None:
        super().__init__(declaration, home)
        self._reduce = declaration.reduce

    def get(self) -> Any:
        """The reduced value."""
        return self._home().get(self._name)

    def add(self, value: Any) -> None:
        """Reduce with ``value``."""
        entry = self._home()
        entry[self._name] = self._reduce(entry[self._name], value) if self._name in entry else value


class AggregatingHandle(Handle):
    """``AggregatingState``."""

    __slots__ = ("_function",)

    def __init__(self, declaration: AggregatingStateDeclaration[Any, Any, Any], home: Home) -> None:
        super().__init__(declaration, home)
        self._function = declaration.function

    def get(self) -> Any:
        """The result."""
        entry = self._home()
        return self._function.get_result(entry[self._name]) if self._name in entry else None

    def add(self, value: Any) -> None:
        """Add to the accumulator."""
        entry = self._home()
        accumulator = entry[self._name] if self._name in entry else self._function.create_accumulator()
        entry[self._name] = self._function.add(value, accumulator)


def default_maker(declaration: ValueStateDeclaration[Any, Any]) -> Callable[[], Any]:
    """Gives the default of ``declaration``, so that changing it in one place does not change it in another."""
    default = declaration.default
    if isinstance(default, _IMMUTABLE):
        return lambda: default
    return lambda: copy.deepcopy(default)
