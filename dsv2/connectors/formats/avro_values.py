"""Primitive and logical types of Avro, and checks of their values: fastavro would round, cut or convert others."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import lru_cache
from types import NoneType
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from dsv2.connectors.formats.error import FormatError, shown
from dsv2.connectors.formats.plain_values import plain

T = TypeVar("T", datetime, time)
Take: TypeAlias = Callable[[Any], Any]
"""Returns what fastavro writes for a value, or raises ``FormatError``."""
_Node: TypeAlias = Mapping[str, Any]

_FLOAT = struct.Struct("<f")
_EXACT_INT = 1 << 53
_LIMITS = {"int": 1 << 31, "long": 1 << 63}


class _AvroTypeError(ValueError):
    """A type of Avro cannot hold a value. The message is the reason and the remedy."""


class _Primitive(NamedTuple):
    """A primitive or logical type.

    Attributes:
        type: The class of its values in Python.
        check: Returns what to write for a value of this class, or raises ``_AvroTypeError``. None: every value fits.
        trusted: When fastavro writes a value of this class right, or fails, without a check: a condition of the value
            ``{0}``. None: never.
    """

    type: type
    check: Callable[[Any, _Node], Any] | None = None
    trusted: str | None = "True"


def primitive_of(node: _Node) -> _Primitive:
    """Return the type of a schema that is neither a record, an enum nor a collection."""
    return _PRIMITIVES[_key(node)]


def trusted(node: _Node) -> tuple[str, ...]:
    """Return the condition under which a value of a schema needs no check, if there is one."""
    primitive = _PRIMITIVES.get(_key(node))
    if primitive is None or primitive.trusted is None:
        return ()
    return (f"type({{0}}) is {primitive.type.__name__} and {primitive.trusted}",)


def refused(place: str, value: object, reason: str) -> FormatError:
    """Return the error for a value of the field ``place``."""
    return FormatError(f"{place} is {shown(value, 100)}, {reason}")


def taker_of_primitive(node: _Node, place: str) -> Take:
    """Return how values of a primitive or logical type are written. ``place``: The field, for errors."""
    kind, check, _ = primitive_of(node)
    name = _key(node).split("-", 1)[-1]

    def take(value: Any) -> Any:
        found = value if type(value) is kind else plain(value)
        try:
            if type(found) is not kind:
                found = _converted(found, kind)
            return found if check is None else check(found, node)
        except _AvroTypeError as misfit:
            raise refused(place, value, f"which the Avro type {name} cannot hold: {misfit}") from None

    return take


def _key(node: _Node) -> str:
    """The key of the type. A logical type that fastavro does not know has the values of its primitive type."""
    key = f"{node['type']}-{node.get('logicalType')}"
    return key if key in _PRIMITIVES else str(node["type"])


def _converted(value: Any, kind: type) -> float:
    """Convert the only values of another type that fit: the annotation float includes int."""
    if kind is not float or type(value) is not int:
        raise _AvroTypeError(f"it must be {kind.__name__}, not {type(value).__name__}")
    if abs(value) > _EXACT_INT and (value.bit_length() > 1023 or int(float(value)) != value):
        raise _AvroTypeError("it has more than 53 bits. Use long or string")
    return float(value)


def _integer(value: int, node: _Node) -> int:
    limit = _LIMITS[node["type"]]
    if not -limit <= value < limit:
        wider = "long" if node["type"] == "int" else "string"
        raise _AvroTypeError(f"it has more than {limit.bit_length()} bits. Use {wider}")
    return value


def _float(value: float, node: _Node) -> float:
    try:
        if math.isnan(value) or _FLOAT.unpack(_FLOAT.pack(value))[0] == value:
            return value
    except OverflowError:
        pass
    raise _AvroTypeError("it is not a 32-bit float. Use double, or round it, as numpy.float32 does")


def _text(value: str, node: _Node) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _AvroTypeError(f"it has a lone surrogate at position {error.start}. Use bytes") from None
    return value


def _fixed(value: bytes, node: _Node) -> bytes:
    if len(value) != node["size"]:
        raise _AvroTypeError(f"it has {len(value)} bytes, not {node['size']}")
    return value


def _timestamp(value: datetime, node: _Node) -> datetime:
    if value.utcoffset() is None:
        raise _AvroTypeError("it has no time zone. Use local-timestamp-micros, or add one: value.replace(tzinfo=...)")
    try:
        return _at_unit(value.astimezone(UTC), node)
    except OverflowError:
        raise _AvroTypeError("it is not in the years 1 to 9999 in UTC") from None


def _local_timestamp(value: datetime, node: _Node) -> datetime:
    if value.tzinfo is not None:
        raise _AvroTypeError("it has a time zone. Use timestamp-micros, or remove the zone")
    return _at_unit(value, node)


def _time(value: time, node: _Node) -> time:
    if value.tzinfo is not None:
        raise _AvroTypeError("it has a time zone. Remove the zone")
    return _at_unit(value, node)


def _at_unit(value: T, node: _Node) -> T:
    if value.microsecond % 1000 and node["logicalType"].endswith("millis"):
        kind = node["logicalType"].removesuffix("-millis")
        raise _AvroTypeError(f"it has microseconds. Use {kind}-micros, or round it")
    return value


@lru_cache(maxsize=256)
def _exactly(precision: int) -> Context:
    return Context(prec=precision, traps=[Inexact, InvalidOperation])


def _decimal(value: Decimal, node: _Node) -> Decimal:
    precision, scale = node["precision"], node.get("scale", 0)
    if not value.is_finite():
        raise _AvroTypeError("it is not finite")
    try:
        return value.quantize(Decimal((0, (1,), -scale)), context=_exactly(precision))
    except (Inexact, InvalidOperation):
        raise _AvroTypeError(
            f"it has more than {precision} digits, or more than {scale} after the point. Round it: value.quantize"
        ) from None


_PRIMITIVES: Mapping[str, _Primitive] = {
    "null": _Primitive(NoneType),
    "boolean": _Primitive(bool),
    "int": _Primitive(int, _integer, "-0x80000000 <= {0} < 0x80000000"),
    "long": _Primitive(int, _integer),
    "float": _Primitive(float, _float, None),
    "double": _Primitive(float),
    "bytes": _Primitive(bytes),
    "string": _Primitive(str, _text),
    "fixed": _Primitive(bytes, _fixed),
    # With the logical types of fastavro.
    "bytes-decimal": _Primitive(Decimal, _decimal, None),
    "fixed-decimal": _Primitive(Decimal, _decimal, None),
    "string-uuid": _Primitive(UUID),
    "int-date": _Primitive(date),
    "int-time-millis": _Primitive(time, _time, None),
    "long-time-micros": _Primitive(time, _time, "{0}.tzinfo is None"),
    "long-timestamp-millis": _Primitive(datetime, _timestamp, None),
    "long-timestamp-micros": _Primitive(datetime, _timestamp, "{0}.tzinfo is UTC"),
    "long-local-timestamp-millis": _Primitive(datetime, _local_timestamp, None),
    "long-local-timestamp-micros": _Primitive(datetime, _local_timestamp, "{0}.tzinfo is None"),
}
