"""Handles on states whose values stay until they are removed: views on cells of which one is looked up at each access.

A state is in its cell as a plain value, list or dict, and has one only while it is not empty.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Protocol

from dsv2.runtime.serde.references import Reference
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
    "Cells",
    "Handle",
    "ListHandle",
    "MapHandle",
    "PlainHandle",
    "ReducingHandle",
    "Spot",
    "ValueHandle",
    "default_maker",
)


class Cells(Protocol):
    """Where the values of one state are, by what tells them apart: keys, mostly."""

    def get(self, key: Any, /) -> Any:
        """A value, or None."""

    def pop(self, key: Any, default: None, /) -> Any:
        """Remove a value, if there is one."""

    def __getitem__(self, key: Any, /) -> Any: ...

    def __setitem__(self, key: Any, value: Any, /) -> None: ...

    def __contains__(self, key: Any, /) -> bool: ...


class Spot(Protocol):
    """Which cell is meant just now."""

    key: Any

    @property
    def touched(self) -> Container[Any]:
        """The keys whose cells may be looked at and changed; always the same object."""

    def touch(self) -> None:
        """Make ``key`` one of them. Raises ``ContractError`` if there is none."""


_IMMUTABLE = (int, float, complex, str, bytes, type(None))


class Handle(Reference):
    """What all handles share. A function that keeps one in a field finds the one of this name there after a restart."""

    __slots__ = ("declaration",)

    reference_kind = "state"

    def __init__(self, declaration: StateDeclaration) -> None:
        self.declaration = declaration

    @property
    def reference_name(self) -> str:
        return self.declaration.name


class PlainHandle(Handle):
    """A view on that one of ``cells`` that ``spot`` is at.

    What may well be called for each record does by itself what ``_key`` does.
    """

    __slots__ = ("_cells", "_spot", "_touched")

    def __init__(self, declaration: StateDeclaration, cells: Cells, spot: Spot) -> None:
        super().__init__(declaration)
        self._cells = cells
        self._spot = spot
        self._touched = spot.touched

    def clear(self) -> None:
        """Remove everything."""
        self._cells.pop(self._key(), None)

    def _key(self) -> Any:
        key = self._spot.key
        if key not in self._touched:
            self._spot.touch()
        return key


class ValueHandle(PlainHandle):
    """``ValueState``."""

    __slots__ = ("_default",)

    def __init__(self, declaration: ValueStateDeclaration[Any, Any], cells: Cells, spot: Spot) -> None:
        super().__init__(declaration, cells, spot)
        self._default = default_maker(declaration)

    def value(self) -> Any:
        """The value or the default."""
        key = self._spot.key
        if key not in self._touched:
            self._spot.touch()
        value = self._cells.get(key)
        return value if value is not None else self._default()

    def update(self, value: Any) -> None:
        """Store ``value``."""
        if value is None:
            self.clear()
            return
        key = self._spot.key
        if key not in self._touched:
            self._spot.touch()
        self._cells[key] = value


class ListHandle(PlainHandle):
    """``ListState``."""

    __slots__ = ()

    def __init__(self, declaration: ListStateDeclaration[Any], cells: Cells, spot: Spot) -> None:
        super().__init__(declaration, cells, spot)

    def get(self) -> list[Any]:
        """The elements."""
        return list(self._cells.get(self._key()) or ())

    def add(self, value: Any) -> None:
        """Append ``value``."""
        key = self._key()
        values = self._cells.get(key)
        if values is None:
            self._cells[key] = [value]
        else:
            values.append(value)

    def add_all(self, values: Iterable[Any]) -> None:
        """Append ``values``."""
        if added := list(values):
            key = self._key()
            before = self._cells.get(key)
            if before is None:
                self._cells[key] = added
            else:
                before.extend(added)

    def update(self, values: Iterable[Any]) -> None:
        """Store ``values``."""
        if new := list(values):
            self._cells[self._key()] = new
        else:
            self.clear()


class MapHandle(PlainHandle):
    """``MapState`` and ``BroadcastState``."""

    __slots__ = ()

    def __init__(
        self,
        declaration: MapStateDeclaration[Any, Any] | BroadcastStateDeclaration[Any, Any],
        cells: Cells,
        spot: Spot,
    ) -> None:
        super().__init__(declaration, cells, spot)

    def get(self, key: Any, default: Any = None) -> Any:
        """The value of ``key``."""
        at = self._spot.key
        if at not in self._touched:
            self._spot.touch()
        entries = self._cells.get(at)
        return default if entries is None else entries.get(key, default)

    def put(self, key: Any, value: Any) -> None:
        """Set the value of ``key``."""
        at = self._key()
        entries = self._cells.get(at)
        if entries is None:
            self._cells[at] = {key: value}
        else:
            entries[key] = value

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set many values."""
        if entries:
            at = self._key()
            before = self._cells.get(at)
            if before is None:
                self._cells[at] = dict(entries)
            else:
                before.update(entries)

    def remove(self, key: Any) -> None:
        """Remove ``key``."""
        at = self._key()
        entries = self._cells.get(at)
        if entries is not None:
            entries.pop(key, None)
            if not entries:
                self._cells.pop(at, None)

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
        entries: dict[Any, Any] | None = self._cells.get(self._key())
        return {} if entries is None else entries


class ReducingHandle(PlainHandle):
    """``ReducingState``."""

    __slots__ = ("_reduce",)

    def __init__(self, declaration: ReducingStateDeclaration[Any], cells: Cells, spot: Spot) -> None:
        super().__init__(declaration, cells, spot)
        self._reduce = declaration.reduce

    def get(self) -> Any:
        """The reduced value."""
        return self._cells.get(self._key())

    def add(self, value: Any) -> None:
        """Reduce with ``value``."""
        key, cells = self._key(), self._cells
        cells[key] = self._reduce(cells[key], value) if key in cells else value


class AggregatingHandle(PlainHandle):
    """``AggregatingState``."""

    __slots__ = ("_function",)

    def __init__(self, declaration: AggregatingStateDeclaration[Any, Any, Any], cells: Cells, spot: Spot) -> None:
        super().__init__(declaration, cells, spot)
        self._function = declaration.function

    def get(self) -> Any:
        """The result."""
        key, cells = self._key(), self._cells
        return self._function.get_result(cells[key]) if key in cells else None

    def add(self, value: Any) -> None:
        """Add to the accumulator."""
        key, cells = self._key(), self._cells
        accumulator = cells[key] if key in cells else self._function.create_accumulator()
        cells[key] = self._function.add(value, accumulator)


def default_maker(declaration: ValueStateDeclaration[Any, Any]) -> Callable[[], Any]:
    """Gives the default of ``declaration``, so that changing it in one place does not change it in another."""
    default = declaration.default
    if isinstance(default, _IMMUTABLE):
        return lambda: default
    return lambda: copy.deepcopy(default)
