"""Values as JSON: those of tables, and keys, also back."""

from __future__ import annotations

import dataclasses
import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any
from uuid import UUID

_MICROSECOND = timedelta(microseconds=1)


def json_value(value: Any) -> Any:
    """Return ``value`` as JSON: bytes in Base64, dates in ISO format, infinite numbers and others as strings."""
    if isinstance(value, Mapping):
        return {str(name): json_value(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return list(map(json_value, value))
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


def key_json(key: Any) -> Any:
    """Return a key as JSON: members of enumerations by name, durations in µs, others as ``json_value`` does."""
    if isinstance(key, Enum):
        return key.name
    if dataclasses.is_dataclass(key):
        return {field.name: key_json(getattr(key, field.name)) for field in dataclasses.fields(key)}
    if isinstance(key, tuple):
        return list(map(key_json, key))
    return key // _MICROSECOND if isinstance(key, timedelta) else json_value(key)


def key_like(example: Any, given: Any) -> Any:
    """Return the key for which JSON stands.

    Args:
        example: Another key, whose class it has.
        given: The result of ``key_json``, or a tuple as an object, as tables show it.

    Raises:
        ValueError: ``given`` does not stand for such a key.
    """
    kind: Any = type(example)
    try:
        if isinstance(example, Enum):
            return kind[given]
        if dataclasses.is_dataclass(example):
            names = [field.name for field in dataclasses.fields(example)]
            return kind(**dict(zip(names, _parts_like(example, names, given), strict=True)))
        if isinstance(example, tuple):
            numbered = [f"_{number}" for number in range(1, len(example) + 1)]
            names = list(getattr(example, "_fields", numbered))
            parts = _parts_like(example, names, given)
            return tuple(parts) if names == numbered else kind(*parts)
        plain = next((base for base in kind.__mro__ if base in _READ), None)
        if plain is None:
            return given
        accepted, read = _READ[plain]
        if type(given) in accepted:
            return read(given)
    except (ArithmeticError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{given!r} is not like the key {example!r}") from error
    raise ValueError(f"{given!r} is not like the key {example!r}")


def _parts_like(example: Any, names: list[str], given: Any) -> list[Any]:
    found = [given[name] for name in names] if isinstance(given, dict) else given
    if not isinstance(found, list) or len(found) != len(names) or (isinstance(given, dict) and len(given) > len(names)):
        raise ValueError
    parts = example if isinstance(example, tuple) else [getattr(example, name) for name in names]
    return [
        None if part is None else key_like(like, part) for like, part in zip(parts, found, strict=True)
    ]  # a part may be None


_READ: dict[type, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    bool: ((bool,), bool),
    datetime: ((str,), datetime.fromisoformat),
    int: ((int,), int),
    float: ((float, int), float),
    str: ((str,), str),
    Decimal: ((str, int), Decimal),
    Fraction: ((str, int), Fraction),
    date: ((str,), date.fromisoformat),
    time: ((str,), time.fromisoformat),
    timedelta: ((int,), lambda given: given * _MICROSECOND),
    UUID: ((str,), UUID),
    bytes: ((str,), lambda given: b64decode(given, validate=True)),
}
"""The types of JSON that values of a class may have, and their readers."""
