"""Checks of the values that Avro encoders write: fastavro would round, cut or convert what a type cannot hold."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from types import NoneType
from typing import Any, TypeAlias
from uuid import UUID

from dsv2.connectors.formats.error import FormatError, shown
from dsv2.connectors.formats.plain_values import plain

__all__ = ("Take", "checked_text", "refused", "taker_of_primitive")

Take: TypeAlias = Callable[[Any], Any]
"""Returns what fastavro writes for a value, or raises ``FormatError``."""

_EPOCH = datetime(1970, 1, 1)
_EPOCH_UTC = _EPOCH.replace(tzinfo=UTC)
_MICRO, _DAY_0 = timedelta(microseconds=1), _EPOCH.toordinal()
_FIRST, _LAST = (datetime.min - _EPOCH) // _MICRO, (datetime.max - _EPOCH) // _MICRO
_FLOAT = struct.Struct("<f")
_EXACT_INT = 1 << 53


class _MisfitError(ValueError):
    """A type of Avro cannot hold a value. The message is the reason and the remedy."""


def refused(place: str, value: object, reason: str) -> FormatError:
    """Return the error for a value of the field ``place``."""
    return FormatError(f"{place} is {shown(value, 100)}, {reason}")


def taker_of_primitive(node: Mapping[str, Any], logical: str | None, place: str) -> Take:
    """Return how values of a primitive or logical type are written.

    Args:
        node: The schema.
        logical: The key of the logical type in fastavro, such as ``"long-timestamp-millis"``; None: there is none.
        place: The field, for errors.
    """
    kind: str = node["type"]
    if logical is None and kind in ("int", "long"):
        return _integer(kind, place)
    if logical is None and kind == "string":
        return lambda value: value if type(value) is str and value.isascii() else _slow(place, kind, _text, value)
    if logical is None and kind == "double":
        return lambda value: value if type(value) is float else _slow(place, kind, _double, value)
    if logical is not None and "timestamp" in logical:
        check: Take = partial(_timestamp, local="local" in logical, millis=logical.endswith("millis"))
    elif logical is not None and logical.endswith("decimal"):
        check = partial(_decimal, scale=node.get("scale", 0), context=_exactly(node["precision"]))
    elif logical is not None:
        check = _LOGICAL[logical]
    else:
        check = partial(_fixed, size=node["size"]) if kind == "fixed" else _PRIMITIVE[kind]
    shown = kind if logical is None else node["logicalType"]

    def take(value: Any) -> Any:
        try:
            return check(value)
        except _MisfitError:
            return _slow(place, shown, check, value)

    return take


def checked_text(place: str, value: Any) -> str:
    """Return the key of a map as it is written. Raises ``FormatError``."""
    if type(value) is str and value.isascii():
        return value
    text: str = _slow(place, "string", _text, value)
    return text


def _slow(place: str, kind: str, check: Take, value: Any) -> Any:
    try:
        return check(plain(value))
    except _MisfitError as misfit:
        raise refused(place, value, f"which the Avro type {kind} cannot hold: {misfit}") from None


def _integer(kind: str, place: str) -> Take:
    high = 1 << (31 if kind == "int" else 63)
    low, wider = -high, "long" if kind == "int" else "string"

    def check(value: Any) -> int:
        _require(value, int)
        if not low <= value < high:
            raise _MisfitError(f"it has more than {high.bit_length()} bits. Use {wider}")
        number: int = value
        return number

    return lambda value: value if type(value) is int and low <= value < high else _slow(place, kind, check, value)


def _require(value: Any, kind: type) -> None:
    if type(value) is not kind:
        raise _MisfitError(f"it must be {kind.__name__}, not {type(value).__name__}")


def _text(value: Any) -> str:
    _require(value, str)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _MisfitError(f"it has a lone surrogate at position {error.start}. Use bytes") from None
    text: str = value
    return text


def _double(value: Any) -> float:
    if type(value) is int:  # an annotation float includes int
        if abs(value) > _EXACT_INT and (value.bit_length() > 1023 or int(float(value)) != value):
            raise _MisfitError("it has more than 53 bits. Use long or string")
        return float(value)
    _require(value, float)
    number: float = value
    return number


def _float(value: Any) -> float:
    number = _double(value)
    try:
        if math.isnan(number) or _FLOAT.unpack(_FLOAT.pack(number))[0] == number:
            return number
    except OverflowError:
        pass
    raise _MisfitError("it is not a 32-bit float. Use double, or round it, as numpy.float32 does")


def _same(value: Any, kind: type) -> Any:
    _require(value, kind)
    return value


def _fixed(value: Any, size: int) -> bytes:
    _require(value, bytes)
    if len(value) != size:
        raise _MisfitError(f"it has {len(value)} bytes, not {size}")
    data: bytes = value
    return data


def _timestamp(value: Any, *, local: bool, millis: bool) -> int:
    _require(value, datetime)
    if (value.tzinfo is None) is not local:
        if local:
            raise _MisfitError("it has a time zone. Use timestamp-micros, or remove the zone")
        raise _MisfitError("it has no time zone. Use local-timestamp-micros, or add one: value.replace(tzinfo=...)")
    micros: int = (value - (_EPOCH if local else _EPOCH_UTC)) // _MICRO
    if not _FIRST <= micros <= _LAST:
        raise _MisfitError("it is not in the years 1 to 9999 in UTC")
    return _in_millis(micros, "timestamp") if millis else micros


def _in_millis(micros: int, kind: str) -> int:
    millis, rest = divmod(micros, 1000)
    if rest:
        raise _MisfitError(f"it has microseconds. Use {kind}-micros, or round it")
    return millis


def _time(value: Any, *, millis: bool) -> int:
    _require(value, time)
    if value.tzinfo is not None:
        raise _MisfitError("it has a time zone. Remove the zone")
    micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return _in_millis(micros, "time") if millis else micros


def _date(value: Any) -> int:
    _require(value, date)
    number: int = value.toordinal() - _DAY_0
    return number


def _exactly(precision: int) -> Context:
    return Context(prec=precision, traps=[Inexact, InvalidOperation])


def _decimal(value: Any, *, scale: int, context: Context) -> Decimal:
    _require(value, Decimal)
    if not value.is_finite():
        raise _MisfitError("it is not finite")
    try:
        exact: Decimal = value.quantize(Decimal((0, (1,), -scale)), context=context)
    except (Inexact, InvalidOperation):
        raise _MisfitError(
            f"it has more than {context.prec} digits, or more than {scale} after the point. Round it: value.quantize"
        ) from None
    return exact


def _uuid(value: Any) -> str:
    _require(value, UUID)
    return str(value)


_PRIMITIVE: Mapping[str, Take] = {
    "null": partial(_same, kind=NoneType),
    "boolean": partial(_same, kind=bool),
    "float": _float,
    "bytes": partial(_same, kind=bytes),
}
_LOGICAL: Mapping[str, Take] = {
    "string-uuid": _uuid,
    "int-date": _date,
    "int-time-millis": partial(_time, millis=True),
    "long-time-micros": partial(_time, millis=False),
}
