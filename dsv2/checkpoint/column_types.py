"""Column types for the values of states, so that tools can read savepoints as tables.

A column type is JSON: the name of a plain type, ``{"list": type}``, ``{"map": [key, value]}``, or ``{"struct": [[name,
type], ...]}``. It is part of the description of a program, because a savepoint may be taken without the program.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from typing_extensions import is_typeddict

from dsv2.state.types import resolved

ColumnType: TypeAlias = str | dict[str, Any]

_PLAIN: dict[Any, str] = {
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


def column_type(form: object) -> ColumnType | None:
    """Return the column type for values of a declared type; None if there is none, such as for ``int | str``."""
    return _Forms().of(form)


class _Forms:
    """Finds column types. A class that contains itself has none."""

    def __init__(self) -> None:
        self._inside: list[type] = []

    def of(self, form: Any) -> ColumnType | None:
        form = resolved(form)
        origin, arguments = typing.get_origin(form), typing.get_args(form)
        if origin is not None:
            return self._of_generic(origin, arguments)
        if form in _PLAIN:
            return _PLAIN[form]
        return self._of_class(form) if isinstance(form, type) else None

    def _of_generic(self, origin: Any, arguments: tuple[Any, ...]) -> ColumnType | None:
        present = [argument for argument in arguments if argument is not type(None)]
        if origin is typing.Literal:
            kinds = {_PLAIN.get(type(argument)) for argument in present}
            return kinds.pop() if len(kinds) == 1 else None
        if len(present) == 1 < len(arguments):  # T | None
            return self.of(present[0])
        if origin in _LISTS:
            return _list_of(self.of(arguments[0]))
        if origin is dict:
            return _map_of(self.of(arguments[0]), self.of(arguments[1]))
        if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
            return _list_of(self.of(arguments[0]))
        if origin is tuple:
            return self._struct((f"_{number}", argument) for number, argument in enumerate(arguments, 1))
        return self._of_class(origin) if isinstance(origin, type) and dataclasses.is_dataclass(origin) else None

    def _of_class(self, kind: type) -> ColumnType | None:
        if issubclass(kind, Enum):
            return "string"
        has_fields = dataclasses.is_dataclass(kind) or hasattr(kind, "_fields") or is_typeddict(kind)
        if not has_fields or kind in self._inside:
            return None
        try:
            hints = typing.get_type_hints(kind)
        except Exception:  # a name that exists only for type checkers
            return None
        self._inside.append(kind)
        struct = self._struct((name, hints.get(name)) for name in _field_names(kind, hints))
        self._inside.pop()
        return struct

    def _struct(self, fields: Iterable[tuple[str, Any]]) -> ColumnType | None:
        found = [[name, self.of(form)] for name, form in fields]
        return {"struct": found} if found and all(kind is not None for _, kind in found) else None


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
        names = getattr(kind, "_fields", None) or [f"_{number}" for number in range(1, len(value) + 1)]
        return _struct_of(names, map(of_part, value))
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind)]
        return _struct_of(names, [of_part(getattr(value, name, None)) for name in names])
    return None


def _struct_of(names: Iterable[str], columns: Iterable[ColumnType | None]) -> ColumnType | None:
    found = [[name, column] for name, column in zip(names, columns, strict=True)]
    return {"struct": found} if found and all(kind is not None for _, kind in found) else None


def _field_names(kind: Any, hints: dict[str, Any]) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(getattr(kind, "_fields", hints))


def _list_of(element: ColumnType | None) -> ColumnType | None:
    return None if element is None else {"list": element}


def _map_of(key: ColumnType | None, value: ColumnType | None) -> ColumnType | None:
    return None if key is None or value is None else {"map": [key, value]}


def is_column_type(column: object) -> bool:
    """Return whether ``column`` is a column type. For what was read from a file."""
    match column:
        case str():
            return column in _PLAIN.values()
        case {"list": element, **others} if not others:
            return is_column_type(element)
        case {"map": [key, value], **others} if not others:
            return is_column_type(key) and is_column_type(value)
        case {"struct": [_, *_] as fields, **others} if not others:
            return all(
                isinstance(field, list) and len(field) == 2 and isinstance(field[0], str) and is_column_type(field[1])
                for field in fields
            )
    return False
