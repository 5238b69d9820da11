"""Column types for the values of states, so that tools can read savepoints as tables.

They are part of the description of a program, because a savepoint may be taken without the program.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

from msgspec import Meta, Struct
from typing_extensions import is_typeddict

from dsv2.state.types import resolved

PlainColumn: TypeAlias = Literal[
    "bool", "int64", "float64", "string", "binary", "date", "timestamp", "duration", "decimal"
]


class ListColumn(Struct, frozen=True, tag="list"):
    """A list of values of one type."""

    element: ColumnType


class MapColumn(Struct, frozen=True, tag="map"):
    """Values by key."""

    key: ColumnType
    value: ColumnType


class StructColumn(Struct, frozen=True, tag="struct"):
    """Named fields."""

    fields: Annotated[tuple[tuple[str, ColumnType], ...], Meta(min_length=1)]


ColumnType: TypeAlias = PlainColumn | ListColumn | MapColumn | StructColumn

_PLAIN: dict[Any, PlainColumn] = {
    bool: "bool",
    int: "int64",
    float: "float64",
    str: "string",
    bytes: "binary",
    date: "date",
    datetime: "timestamp",
    time: "string",  # Spark has no type for it
    timedelta: "duration",
    Decimal: "decimal",
    UUID: "string",
}
_LISTS = (list, set, frozenset)


def column_type(form: Any, inside: Sequence[type] = ()) -> ColumnType | None:
    """Return the column type for values of a declared type; None if there is none, such as for ``int | str``.

    ``inside``: The classes that it is a part of. A class that contains itself has no column type.
    """
    form = resolved(form)
    origin, arguments = typing.get_origin(form), typing.get_args(form)
    if origin is None:
        return _PLAIN[form] if form in _PLAIN else _of_class(form, inside) if isinstance(form, type) else None
    present = [argument for argument in arguments if argument is not type(None)]
    if origin is typing.Literal:
        kinds = {_PLAIN.get(type(argument)) for argument in present}
        return kinds.pop() if len(kinds) == 1 else None
    if len(present) == 1 < len(arguments):  # T | None
        return column_type(present[0], inside)
    if origin in _LISTS or (origin is tuple and arguments[1:] == (...,)):
        return list_of(column_type(arguments[0], inside))
    if origin is dict:
        return map_of(*(column_type(argument, inside) for argument in arguments))
    if origin is tuple:
        return _struct_of(_numbered(arguments), [column_type(argument, inside) for argument in arguments])
    return _of_class(origin, inside) if isinstance(origin, type) and dataclasses.is_dataclass(origin) else None


def _of_class(kind: type, inside: Sequence[type]) -> ColumnType | None:
    if issubclass(kind, Enum):
        return "string"
    has_fields = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") or is_typeddict(kind)
    if not has_fields or kind in inside:
        return None
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # a name that exists only for type checkers
        return None
    names = _field_names(kind, hints)
    return _struct_of(names, [column_type(hints.get(name), [*inside, kind]) for name in names])


def column_type_of_value(
    value: object, of_part: Callable[[object], ColumnType | None] | None = None
) -> ColumnType | None:
    """Return the column type for values like ``value``, for keys, whose type is not declared.

    ``of_part``: Returns the column type of a field or element. None (default): this function.
    """
    kind, of_part = type(value), of_part or column_type_of_value
    if isinstance(value, Enum):
        return "string"
    if kind in _PLAIN:
        return _PLAIN[kind]
    if isinstance(value, tuple):
        names = getattr(kind, "_fields", None) or _numbered(value)
        return _struct_of(names, map(of_part, value))
    if dataclasses.is_dataclass(kind):
        names = _field_names(kind)
        return _struct_of(names, [of_part(getattr(value, name, None)) for name in names])
    return None


def _numbered(parts: Sequence[object]) -> list[str]:
    return [f"_{number}" for number in range(1, len(parts) + 1)]


def _struct_of(names: Sequence[str], columns: Iterable[ColumnType | None]) -> ColumnType | None:
    fields = [(name, column) for name, column in zip(names, columns, strict=True) if column is not None]
    return StructColumn(tuple(fields)) if fields and len(fields) == len(names) else None


def _field_names(kind: Any, hints: Iterable[str] = ()) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(getattr(kind, "_fields", hints))


def list_of(element: ColumnType | None) -> ColumnType | None:
    """Return the type of lists; None if the elements have none."""
    return None if element is None else ListColumn(element)


def map_of(key: ColumnType | None, value: ColumnType | None) -> ColumnType | None:
    """Return the type of maps; None if keys or values have none."""
    return None if key is None or value is None else MapColumn(key, value)
