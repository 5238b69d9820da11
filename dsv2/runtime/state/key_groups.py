"""Assigns keys to subtasks by a hash that is the same in every process, on every machine and in every run.

Python's ``hash`` is seeded per process for str and bytes, but not for numbers. There it is used, because it is the same
for equal numbers of different types (``1 == 1.0 == True == Decimal(1)``): equal keys must share a partition.

The hash does not depend on the name of a class or on the order of its fields, because a program may change both.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag
from fractions import Fraction
from types import FunctionType
from typing import Any
from uuid import UUID
from zlib import crc32

from dsv2.errors import InvalidKeyError
from dsv2.runtime.report.short_repr import shorten

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x9E3779B97F4A7C15  # 2**64 / golden ratio: spreads adjacent numbers
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATACLASS = "dataclass"  # so that the hash differs from that of a tuple


def subtask_of(key: Any, max_parallelism: int, parallelism: int) -> int:
    """Return the subtask that owns ``key``. Key groups are divided into contiguous ranges.

    Args:
        key: The key.
        max_parallelism: The number of key groups.
        parallelism: The number of subtasks.

    Raises:
        InvalidKeyError: The key is None or of a type that cannot be hashed consistently.

    Source: Flink ``KeyGroupRangeAssignment``.
    """
    if key is None:
        raise InvalidKeyError(
            "The assigned key must not be None. The key selector must return a value for every record."
        )
    return stable_hash(key) % max_parallelism * parallelism // max_parallelism


def not_hashable(key: Any, error: TypeError) -> InvalidKeyError:
    """Return the error for a key that is not hashable."""
    return InvalidKeyError(f"The key {shorten(key)} is not hashable: {error}.")


def stable_hash(key: Any) -> int:
    """Return a 32-bit hash of a key.

    Raises:
        InvalidKeyError: The type cannot be hashed consistently.
    """
    kind = type(key)
    hasher = _HASHERS.get(kind)
    if hasher is None:
        hasher = _HASHERS[kind] = _hasher_for(kind)
    return hasher(key)


def _mix(value: int) -> int:
    product = value * _MULTIPLIER
    return (product >> 32 ^ product >> 64) & _MASK  # XOR the upper part, or multiples of 2**40 would collide


def _text(key: str) -> int:
    return _mix(crc32(key.encode("utf-8", "surrogatepass")))


def _bytes(key: bytes) -> int:
    return _mix(crc32(key) + 1)


def _number(key: int | Decimal | Fraction) -> int:
    product = hash(key) * _MULTIPLIER
    return (product >> 32 ^ product >> 64) & _MASK  # _mix, inlined because this may be called per record


def _float(key: float) -> int:
    if math.isnan(key):
        raise InvalidKeyError("NaN cannot be a key: it is not equal to itself.")
    return _mix(hash(key))


def _decimal(key: Decimal) -> int:
    if key.is_nan():
        raise InvalidKeyError("NaN cannot be a key: it is not equal to itself.")
    return _mix(hash(key))


def _sequence(parts: tuple[Any, ...]) -> int:
    checksum = 0
    for part in parts:
        if type(part) is int:  # _number, inlined because keys are often tuples of ids
            product = hash(part) * _MULTIPLIER
            hashed = (product >> 32 ^ product >> 64) & _MASK
        else:
            hashed = stable_hash(part)
        checksum = crc32(hashed.to_bytes(4, "little"), checksum)
    return _mix(checksum + len(parts))


def _datetime(key: datetime) -> int:
    key = key.replace(fold=0)  # comparisons ignore it
    if key.utcoffset() is None:
        return _text(key.isoformat())
    return _timedelta(key - _EPOCH)  # equal instants in different zones are equal keys


def _unless_missing(key: datetime) -> int:
    if key != key:
        raise InvalidKeyError(f"{key} cannot be a key: it is not equal to itself.")
    return _datetime(key)


def _time(key: time) -> int:
    since_midnight = timedelta(0, key.second, key.microsecond, 0, key.minute, key.hour)
    return _timedelta(since_midnight - (key.utcoffset() or timedelta()))


def _timedelta(key: timedelta) -> int:
    return _number(key // timedelta(microseconds=1))


def _flag(key: Flag) -> int:
    if key != type(key)(key.value):
        raise InvalidKeyError(
            f"{key!r} cannot be a key: two flags with the same undeclared bits are not equal in this version of "
            f"Python. Return key.value."
        )
    return _enum(key)


def _enum(key: Enum) -> int:
    return _text(key.name or "")  # a flag without members has no name


_HASHERS: dict[type, Callable[[Any], int]] = {
    str: _text,
    bytes: _bytes,
    bool: _number,
    int: _number,
    float: _float,
    Decimal: _decimal,
    Fraction: _number,
    tuple: _sequence,
    date: lambda key: _text(key.isoformat()),
    datetime: _datetime,
    time: _time,
    timedelta: _timedelta,
    UUID: lambda key: _bytes(key.bytes),
    type(None): lambda key: 0,
}
_BUILT_IN = (str, bytes, bool, int, float, Decimal, Fraction, tuple, datetime, date, time, timedelta, UUID)


def _hasher_for(kind: type) -> Callable[[Any], int]:
    if issubclass(kind, (*_BUILT_IN, Enum)) or dataclasses.is_dataclass(kind):
        _check_equality(kind)
    for base in _BUILT_IN:  # an IntEnum, StrEnum or NamedTuple equals the plain value, so it must hash like it
        if issubclass(kind, base):
            return _unless_missing if base is datetime else _HASHERS[base]
    if issubclass(kind, Enum):
        return _flag if issubclass(kind, Flag) else _enum
    if dataclasses.is_dataclass(kind) and kind.__hash__ is not None and kind.__hash__ is not object.__hash__:
        return _dataclass_hasher(kind)
    raise InvalidKeyError(
        f"A key of type {kind.__qualname__} cannot be assigned to a subtask: its hash differs between processes. "
        f"{_advice(kind)}Use str, bytes, int, bool, float, Decimal, date, datetime, UUID, Enum, or a tuple, NamedTuple "
        f"or frozen dataclass of these."
    )


def _check_equality(kind: type) -> None:
    """Refuse a class whose keys may be equal although their parts, which are hashed, differ."""
    equality: object = kind.__eq__
    is_known = any(equality is base.__eq__ for base in _BUILT_IN)
    is_generated = isinstance(equality, FunctionType) and equality.__code__.co_filename == "<string>"  # a dataclass
    if isinstance(equality, FunctionType) and not is_known and not is_generated:
        raise InvalidKeyError(
            f"A key of type {kind.__qualname__} cannot be assigned to a subtask: the class compares in its own way "
            f"(__eq__). Return what it compares, such as a str or a tuple."
        )


def _advice(kind: type) -> str:
    """Return advice for a key of ``kind``."""
    package = kind.__module__.partition(".")[0]
    if package == "numpy":
        return "Return key.item(), a value of Python. "
    if issubclass(kind, frozenset):
        return "Return tuple(sorted(key)). "
    return "Return str(key). " if package in ("pathlib", "ipaddress", "zoneinfo") else ""


def _dataclass_hasher(kind: type) -> Callable[[Any], int]:
    names = sorted(field.name for field in dataclasses.fields(kind) if field.compare)

    def hash_fields(key: Any) -> int:
        return _sequence((_DATACLASS, *(getattr(key, name) for name in names)))

    return hash_fields
