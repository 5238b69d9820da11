"""Converts values of Arrow tables to values of declared types. It is the inverse of ``columns``."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from datetime import UTC, datetime, time, timedelta
from enum import Enum
from typing import Any, TypeAlias
from uuid import UUID

from typing_extensions import is_typeddict

from dsv2.state.types import UNIONS, resolved

_Make: TypeAlias = Callable[[Any], Any]


def value_maker(form: object) -> _Make:
    """Return a function that converts what Arrow returns for a value to a value of the type ``form``.

    A value that does not fit is returned as it is, or raises any exception. The caller checks the results.
    """
    form = resolved(form)
    origin, arguments = typing.get_origin(form), typing.get_args(form)
    if origin in UNIONS:
        present = [part for part in arguments if part is not type(None)]
        return _or_none(value_maker(present[0])) if len(present) == 1 else _itself
    if origin in (list, set, frozenset):
        return _sequence(origin, value_maker(arguments[0]))
    if origin is dict:
        return _map(*map(value_maker, arguments))
    if origin is tuple:
        if len(arguments) == 2 and arguments[1] is ...:
            return _sequence(tuple, value_maker(arguments[0]))
        return _tuple([value_maker(argument) for argument in arguments])
    kind = form if origin is None else origin
    return _of_class(kind) if isinstance(kind, type) else _itself


def _of_class(kind: type) -> _Make:
    if issubclass(kind, Enum):
        members = kind.__members__
        return lambda value: members.get(value, value) if isinstance(value, str) else value
    for plain in (kind, datetime, timedelta):
        if plain in _PLAIN and issubclass(kind, plain):
            return _PLAIN[plain]
    if is_typeddict(kind):
        made = {name: value_maker(form) for name, form in typing.get_type_hints(kind).items()}
        return lambda fields: {name: make(fields[name]) for name, make in made.items() if name in fields}
    if dataclasses.is_dataclass(kind):
        return _record(kind, [field.name for field in dataclasses.fields(kind) if field.init])
    names = getattr(kind, "_fields", None)
    return _itself if names is None else _record(kind, list(names))


def _record(kind: type, names: list[str]) -> _Make:
    hints = typing.get_type_hints(kind)
    makers = [(name, value_maker(hints.get(name, Any))) for name in names]

    def make(fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return kind(**{name: make_part(fields[name]) for name, make_part in makers if name in fields})

    return make


def _sequence(kind: Callable[[Any], Any], make: _Make) -> _Make:
    return lambda values: kind(map(make, values))


def _map(make_key: _Make, make_value: _Make) -> _Make:
    """Arrow returns a list of pairs."""
    return lambda pairs: {
        make_key(key): make_value(value) for key, value in (pairs.items() if isinstance(pairs, dict) else pairs)
    }


def _tuple(makers: list[_Make]) -> _Make:
    def make(parts: Any) -> Any:
        values = parts.values() if isinstance(parts, dict) else parts
        return tuple(make_part(value) for make_part, value in zip(makers, values, strict=True))

    return make


def _or_none(make: _Make) -> _Make:
    return lambda value: None if value is None else make(value)


def _itself(value: Any) -> Any:
    return value


def _float(value: Any) -> Any:
    if type(value) is not int:
        return value
    number = float(value)
    return number if number == value else value


def _datetime(value: Any) -> Any:
    """A time zone only shows an instant. UTC is the one that every program can read."""
    if not isinstance(value, datetime):
        return value
    if value != value:
        raise ValueError("it is NaT, which stands for no value")
    _refuse_nanoseconds(value)
    zone = None if value.tzinfo is None else UTC
    moment = value if zone is None else value.astimezone(zone)
    # Arrow may return a subclass of pandas.
    return datetime(*moment.timetuple()[:6], moment.microsecond, zone, fold=moment.fold)


def _timedelta(value: Any) -> Any:
    if type(value) is int:
        return timedelta(microseconds=value)
    if not isinstance(value, timedelta):
        return value
    _refuse_nanoseconds(value)
    return timedelta(value.days, value.seconds, value.microseconds)


def _refuse_nanoseconds(value: Any) -> None:
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        raise ValueError("it has nanoseconds, and datetime only microseconds")


_PLAIN: dict[type, _Make] = {
    float: _float,
    datetime: _datetime,
    time: lambda value: time.fromisoformat(value) if isinstance(value, str) else value,
    timedelta: _timedelta,
    UUID: lambda value: UUID(value) if isinstance(value, str) else value,
}
