"""The Python values that a column keeps. The server casts many others to its type without an error.

A rule returns what psycopg sends for a value. It raises an exception for a value that a query would not return equal. A
text is a literal of the type, as in SQL.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from numbers import Integral, Number
from typing import Any, TypeAlias
from uuid import UUID

from psycopg.types.multirange import Multirange
from psycopg.types.range import Range

from dsv2.connectors.postgres.adaption import ADAPTERS

__all__ = ("ColumnRule", "plain", "rule_of")

ColumnRule: TypeAlias = Callable[[Any], Any]

_MISSING = ("NaTType", "NAType")  # pandas.NaT, pandas.NA
_NUMPY_KINDS = "biufSU"
_OTHERS = (
    *(IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network),
    *(Range, Multirange),
)
_FULL_PRECISION = 6  # digits of a second


def rule_of(oid: int, modifier: int) -> ColumnRule:
    """Return the rule of a column.

    Args:
        oid: The OID of its type; of a domain, that of the base type.
        modifier: The modifier of the type, such as a length, as in the server's catalog. -1: none.
    """
    info = ADAPTERS.types.get(oid)
    if info is None:
        return _literal
    make = _RULES.get(info.name)
    rule = _literal if make is None else make(modifier)
    if oid == info.array_oid:
        rule = _array(rule)
    return rule if info.name in _WITHOUT_LITERALS and oid == info.oid else _or_literal(rule)


def plain(value: Any) -> Any:
    """Return the value of a NumPy scalar, and None for a missing value of pandas; other values unchanged."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in _NUMPY_KINDS:
        return value.item()
    return None if type(value).__name__ in _MISSING else value


def _literal(value: Any) -> Any:
    """The rule of types without a Python class: a text is a literal of the type."""
    if isinstance(value, str):
        return _checked_text(value)
    if isinstance(value, _OTHERS):
        return value
    if isinstance(value, list):
        return [None if item is None else _literal(item) for item in value]
    raise _expected("a str with a literal of the type")


def _or_literal(rule: ColumnRule) -> ColumnRule:
    return lambda value: _checked_text(value) if isinstance(value, str) else rule(value)


def _text(modifier: int) -> ColumnRule:
    longest = modifier - 4 if modifier >= 0 else sys.maxsize

    def rule(value: Any) -> Any:
        if not isinstance(value, str):
            raise _expected("a str")
        if len(value) > longest:
            raise ValueError(f"at most {longest} characters")  # the server would omit blanks at the end
        return _checked_text(value)

    return rule


def _checked_text(value: str) -> str:
    if "\0" in value:
        raise ValueError("a text of PostgreSQL cannot contain NUL")
    if not value.isascii():
        value.encode()  # fails for surrogates
    return value if type(value) is str else str.__str__(value)


def _whole(least: int, greatest: int) -> Callable[[int], ColumnRule]:
    def rule(value: Any) -> Any:
        if type(value) is not int:
            _check_number(value)
        if not least <= value <= greatest or int(value) != value:
            raise ValueError(f"a whole number from {least} to {greatest} is expected")
        return int(value)

    return lambda modifier: rule


def _float8(modifier: int) -> ColumnRule:
    return _double


def _double(value: Any) -> Any:
    if type(value) is float:
        return value
    _check_number(value)
    made = float(value)
    if not (math.isnan(made) or made == value or Decimal(repr(made)) == value):
        raise ValueError("it has more digits than a float")
    return made


def _float4(modifier: int) -> ColumnRule:
    def rule(value: Any) -> Any:
        made = _double(value)
        (stored,) = struct.unpack("<f", struct.pack("<f", made))
        # The server writes the shortest digits that identify the stored number.
        if made == made and stored != made and not (stored and float(f"{made:.6g}") == made):
            raise ValueError("it has more digits than the type real; use double precision")
        return made

    return rule


def _numeric(modifier: int) -> ColumnRule:
    scale = ((modifier - 4 & 0x7FF) ^ 1024) - 1024 if modifier >= 0 else sys.maxsize  # signed, as the server reads it

    def rule(value: Any) -> Any:
        _check_number(value)
        if isinstance(value, Decimal):
            made = value
        else:
            made = Decimal(int(value)) if isinstance(value, Integral) else Decimal(repr(_double(value)))
        if made.is_snan():
            raise ValueError("it is a signaling NaN")
        _, digits, exponent = made.as_tuple()
        excess = -exponent - scale if isinstance(exponent, int) else 0
        if excess > 0 and any(digits[-excess:]):
            raise ValueError(f"at most {scale} digits after the point are expected")
        return made

    return rule


def _check_number(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, Number):
        raise _expected("a number")


def _instance(kind: type) -> Callable[[int], ColumnRule]:
    def rule(value: Any) -> Any:
        if not isinstance(value, kind):
            raise _expected(f"a {kind.__name__}")
        return value

    return lambda modifier: rule


def _bytes(modifier: int) -> ColumnRule:
    def rule(value: Any) -> Any:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise _expected("bytes")
        return bytes(value)

    return rule


def _date(modifier: int) -> ColumnRule:
    def rule(value: Any) -> Any:
        if not isinstance(value, date) or isinstance(value, datetime):
            raise _expected("a date, such as value.date(),")
        return value

    return rule


def _moment(kind: type[datetime | time], *, zoned: bool) -> Callable[[int], ColumnRule]:
    """The rule of timestamps and times of day."""
    wanted = f"a {kind.__name__} {'with' if zoned else 'without'} a time zone"

    def make(modifier: int) -> ColumnRule:
        unit = 10 ** (_FULL_PRECISION - modifier) if modifier >= 0 else 1

        def rule(value: Any) -> Any:
            if not isinstance(value, kind) or value != value:
                raise _expected(wanted)
            offset = value.utcoffset()
            if (offset is not None) is not zoned or (value.tzinfo is not None) is not zoned:
                raise _expected(wanted)
            if value.microsecond % unit or getattr(value, "nanosecond", 0) or (offset and offset.microseconds):
                raise ValueError("it is more precise than the type")
            return value

        return rule

    return make


def _interval(modifier: int) -> ColumnRule:
    def rule(value: Any) -> Any:
        if not isinstance(value, timedelta) or value != value or modifier >= 0:
            raise _expected("a timedelta" if modifier < 0 else "a str (as the type has a precision or fields)")
        if getattr(value, "nanoseconds", 0):
            raise ValueError("it is more precise than the type")
        return value

    return rule


def _json(modifier: int) -> ColumnRule:
    def rule(value: Any) -> Any:
        text = json.dumps(value, allow_nan=False, ensure_ascii=True)
        if json.loads(text) != value:
            raise ValueError("JSON has lists, dicts with keys of type str, texts and numbers only")
        return text

    return rule


def _array(element: ColumnRule) -> ColumnRule:
    def rule(values: Any) -> Any:
        if not isinstance(values, list):
            raise _expected("a list")
        return [inner(item) if isinstance(item, list) else item_of(item) for item in values]

    def inner(values: list[Any]) -> Any:
        if not values:
            raise ValueError("an array of PostgreSQL contains no empty list")
        return rule(values)

    def item_of(value: Any) -> Any:
        value = plain(value)
        return None if value is None else element(value)

    return rule


def _expected(wanted: str) -> ValueError:
    return ValueError(f"{wanted} is expected")


_WITHOUT_LITERALS = ("text", "varchar", "bpchar", "bytea")
_RULES: Mapping[str, Callable[[int], ColumnRule]] = {
    "int2": _whole(-(2**15), 2**15 - 1),
    "int4": _whole(-(2**31), 2**31 - 1),
    "int8": _whole(-(2**63), 2**63 - 1),
    "oid": _whole(0, 2**32 - 1),
    "float4": _float4,
    "float8": _float8,
    "numeric": _numeric,
    "bool": _instance(bool),
    "text": _text,
    "varchar": _text,
    "bpchar": _text,
    "bytea": _bytes,
    "uuid": _instance(UUID),
    "date": _date,
    "timestamp": _moment(datetime, zoned=False),
    "timestamptz": _moment(datetime, zoned=True),
    "time": _moment(time, zoned=False),
    "timetz": _moment(time, zoned=True),
    "interval": _interval,
    "json": _json,
    "jsonb": _json,
}
