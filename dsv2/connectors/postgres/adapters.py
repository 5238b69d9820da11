"""Conversions between the values of columns and Python values.

The server's values are read with the conversions of psycopg, whatever the program registers with psycopg, except where
those change a value.

The server casts many Python values to the type of a column without an error. A rule returns what psycopg sends for a
value. It raises an exception for a value that a query would not return equal. A text is a literal of the type, as in
SQL.
"""

from __future__ import annotations

import json
import math
import re
import struct
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from numbers import Integral, Number
from typing import Any, TypeAlias
from uuid import UUID

from psycopg import DataError
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.postgres import register_default_adapters, register_default_types
from psycopg.pq import Format
from psycopg.types import TypesRegistry
from psycopg.types.array import register_all_arrays
from psycopg.types.multirange import Multirange, MultirangeInfo
from psycopg.types.range import Range, RangeInfo
from psycopg.types.string import TextLoader

ColumnRule: TypeAlias = Callable[[Any], Any]

_MISSING = ("NaTType", "NAType")  # pandas.NaT, pandas.NA
_NUMPY_KINDS = "biufSU"
_ADDRESSES = (IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network)
_MICROSECOND_DIGITS = 6
_WITHOUT_LITERALS = ("text", "varchar", "bpchar", "bytea")  # a str is a value or refused
_DAYS_AND_TIME = re.compile(rb"(?:([-+]?\d+) days?)? ?(?:([-+])?(\d+):(\d+):(\d+(?:\.\d+)?))?")


class _IntervalLoader(Loader):
    """psycopg takes a month for 30 days."""

    def load(self, data: Buffer) -> timedelta:
        if (match := _DAYS_AND_TIME.fullmatch(data)) is None:
            raise DataError("a timedelta consists of days and a time, without months")
        days, sign, hours, minutes, seconds = match.groups(default=b"0")
        time = timedelta(
            hours=int(hours), minutes=int(minutes), microseconds=int(Decimal(seconds.decode()) * 1_000_000)
        )
        return timedelta(days=int(days)) + (-time if sign == b"-" else time)


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise DataError(f"the number {text} exceeds the range of a float")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise DataError("an object has several values of the same name")
    return made


class _JsonbLoader(Loader):
    _json = json.JSONDecoder(parse_float=_finite)

    def load(self, data: Buffer) -> Any:
        return self._json.decode(bytes(data).decode())


class _JsonLoader(_JsonbLoader):
    _json = json.JSONDecoder(parse_float=_finite, object_pairs_hook=_unique)  # unlike jsonb, json keeps duplicates


def _adapters() -> AdaptersMap:
    types = TypesRegistry()
    register_default_types(types)
    adapters = AdaptersMap(types=types)
    register_default_adapters(adapters)
    register_all_arrays(adapters)
    for info in types:
        if isinstance(info, RangeInfo | MultirangeInfo):
            adapters.register_loader(info.oid, TextLoader)  # psycopg's classes cannot be sent between subtasks
    adapters.register_loader("interval", _IntervalLoader)
    adapters.register_loader("json", _JsonLoader)
    adapters.register_loader("jsonb", _JsonbLoader)
    return adapters


ADAPTERS = _adapters()
"""The conversions. Values of types that are not among them are text."""


def is_same_conversion(oid: int, other: int) -> bool:
    """Return True for types with the same conversion, such as integers of several sizes."""
    loaders = [ADAPTERS.get_loader(each, Format.TEXT) or ADAPTERS.get_loader(0, Format.TEXT) for each in (oid, other)]
    return loaders[0] is loaders[1]


def rule_of(oid: int, modifier: int) -> ColumnRule:
    """Return the rule of a column.

    Args:
        oid: The OID of its type; of a domain, that of the base type.
        modifier: The modifier of the type, such as a length, as in the server's catalog. -1: none.
    """
    info = ADAPTERS.types.get(oid)
    if info is None or info.name not in _RULES:
        return _literal
    rule: ColumnRule = partial(_RULES[info.name], modifier)
    if oid == info.array_oid:
        rule = partial(_array, rule)
    elif info.name in _WITHOUT_LITERALS:
        return rule
    return partial(_or_literal, rule)


def plain(value: Any) -> Any:
    """Return the value of a NumPy scalar, and None for a missing value of pandas; other values unchanged."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in _NUMPY_KINDS:
        return value.item()
    return None if type(value).__name__ in _MISSING else value


def _expect(holds: bool, wanted: str) -> None:
    if not holds:
        raise ValueError(f"{wanted} is expected")


def _literal(value: Any) -> Any:
    """The rule of types without a Python class."""
    if isinstance(value, list):
        return [None if item is None else _literal(item) for item in value]
    is_text = isinstance(value, str)
    _expect(is_text or isinstance(value, (*_ADDRESSES, Range, Multirange)), "a str with a literal of the type")
    return _sent_text(value) if is_text else value


def _or_literal(rule: ColumnRule, value: Any) -> Any:
    return _sent_text(value) if isinstance(value, str) else rule(value)


def _sent_text(value: str) -> str:
    _expect("\0" not in value, "a text without NUL")
    if not value.isascii():
        value.encode()  # fails for surrogates
    return value if type(value) is str else str.__str__(value)


def _text(modifier: int, value: Any) -> Any:
    _expect(isinstance(value, str), "a str")
    if 0 <= modifier < len(value) + 4:  # the server would omit blanks at the end
        raise ValueError(f"a str of at most {modifier - 4} characters is expected")
    return _sent_text(value)


def _bytes(modifier: int, value: Any) -> Any:
    _expect(isinstance(value, bytes | bytearray | memoryview), "a value of type bytes")
    return value


def _instance(kind: type, modifier: int, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"a {kind.__name__} is expected")
    return value


def _check_number(value: Any) -> None:
    _expect(isinstance(value, Number) and not isinstance(value, bool), "a number")


def _whole(least: int, greatest: int, modifier: int, value: Any) -> Any:
    if type(value) is not int:
        _check_number(value)
    if not least <= value <= greatest or int(value) != value:
        raise ValueError(f"a whole number from {least} to {greatest} is expected")
    return int(value)


def _float8(modifier: int, value: Any) -> Any:
    if type(value) is float:
        return value
    _check_number(value)
    sent = float(value)
    _expect(sent != sent or sent == value or Decimal(repr(sent)) == value, "a number with the digits of a float")
    return sent


def _float4(modifier: int, value: Any) -> Any:
    sent = _float8(modifier, value)
    (stored,) = struct.unpack("<f", struct.pack("<f", sent))
    # The server writes the shortest digits that identify the stored number.
    is_kept = sent != sent or stored == sent or (stored and float(f"{sent:.6g}") == sent)
    _expect(is_kept, "a number with the digits of the type real")
    return sent


def _numeric(modifier: int, value: Any) -> Any:
    _check_number(value)
    if isinstance(value, Decimal):
        sent = value
    else:
        sent = Decimal(int(value)) if isinstance(value, Integral) else Decimal(repr(_float8(modifier, value)))
    _, digits, exponent = sent.as_tuple()
    _expect(exponent != "N", "a number or a quiet NaN")
    if modifier >= 0 and isinstance(exponent, int):
        scale = ((modifier - 4 & 0x7FF) ^ 1024) - 1024  # 11 bits with a sign
        excess = -exponent - scale
        if excess > 0 and any(digits[-excess:]):
            raise ValueError(f"a number with at most {scale} digits after the point is expected")
    return sent


def _date(modifier: int, value: Any) -> Any:
    _expect(isinstance(value, date) and not isinstance(value, datetime), "a date, such as value.date(),")
    return value


def _moment(kind: type[datetime | time], zoned: bool, modifier: int, value: Any) -> Any:
    """The rule of timestamps and times of day."""
    is_moment = isinstance(value, kind) and value == value  # unlike NaT
    offset = value.utcoffset() if is_moment else None
    has_zone = is_moment and value.tzinfo is not None
    if not is_moment or has_zone is not zoned or (offset is not None) is not zoned:
        raise ValueError(f"a {kind.__name__} {'with' if zoned else 'without'} a time zone is expected")
    unit = 10 ** (_MICROSECOND_DIGITS - modifier) if modifier >= 0 else 1
    is_precise = value.microsecond % unit or getattr(value, "nanosecond", 0) or (offset and offset.microseconds)
    _expect(not is_precise, "a value with the precision of the type")
    return value


def _interval(modifier: int, value: Any) -> Any:
    _expect(modifier < 0, "for a type with a precision or fields, a str")
    _expect(isinstance(value, timedelta) and value == value, "a timedelta")
    _expect(not getattr(value, "nanoseconds", 0), "a value with the precision of the type")
    return value


def _json(modifier: int, value: Any) -> Any:
    text = json.dumps(value, allow_nan=False, ensure_ascii=True)
    _expect(json.loads(text) == value, "a value of dicts with keys of type str, lists, texts and numbers")
    return text


def _array(element: ColumnRule, value: Any) -> Any:
    _expect(isinstance(value, list), "a list")
    return [_item(element, plain(item)) for item in value]


def _item(element: ColumnRule, value: Any) -> Any:
    if isinstance(value, list):
        _expect(value != [], "a list without empty lists")
        return _array(element, value)
    return None if value is None else element(value)


_RULES: Mapping[str, Callable[[int, Any], Any]] = {
    "int2": partial(_whole, -(2**15), 2**15 - 1),
    "int4": partial(_whole, -(2**31), 2**31 - 1),
    "int8": partial(_whole, -(2**63), 2**63 - 1),
    "oid": partial(_whole, 0, 2**32 - 1),
    "float4": _float4,
    "float8": _float8,
    "numeric": _numeric,
    "bool": partial(_instance, bool),
    "text": _text,
    "varchar": _text,
    "bpchar": _text,
    "bytea": _bytes,
    "uuid": partial(_instance, UUID),
    "date": _date,
    "timestamp": partial(_moment, datetime, False),
    "timestamptz": partial(_moment, datetime, True),
    "time": partial(_moment, time, False),
    "timetz": partial(_moment, time, True),
    "interval": _interval,
    "json": _json,
    "jsonb": _json,
}
