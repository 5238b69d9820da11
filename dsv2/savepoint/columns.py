"""Typed columns of savepoint tables: values as Arrow arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from dsv2.checkpoint.column_types import ColumnType, ListColumn, MapColumn

if TYPE_CHECKING:
    import pyarrow as pa


_Convert: TypeAlias = Callable[[Any], Any]
_INT64 = range(-(1 << 63), 1 << 63)
_DECIMAL_DIGITS, _DECIMAL_SCALE = 38, 18
_ENOUGH_DIGITS = Context(prec=2 * _DECIMAL_DIGITS)
_LEAST_DECIMAL = Decimal(1).scaleb(-_DECIMAL_SCALE)


class _ColumnTypeError(Exception):
    """A value does not fit its column type."""


def arrow_type(column: ColumnType) -> pa.DataType:
    """Return the Arrow type of a column type."""
    import pyarrow as pa

    if isinstance(column, str):
        return {
            "bool": pa.bool_(),
            "int64": pa.int64(),
            "float64": pa.float64(),
            "string": pa.string(),
            "binary": pa.binary(),
            "date": pa.date32(),
            "timestamp": pa.timestamp("us", "UTC"),
            "duration": pa.int64(),
            "decimal": pa.decimal128(_DECIMAL_DIGITS, _DECIMAL_SCALE),
        }[column]
    if isinstance(column, ListColumn):
        return pa.list_(arrow_type(column.element))
    if isinstance(column, MapColumn):
        return pa.map_(arrow_type(column.key), arrow_type(column.value))
    return pa.struct([(name, arrow_type(kind)) for name, kind in column.fields])


def to_array(values: Iterable[Any], column: ColumnType) -> pa.Array:
    """Return ``values`` as an array.

    A value that does not fit its type, such as an int of more than 64 bits, is null; its bytes are in another column.
    """
    import pyarrow as pa

    convert = _converter(column)

    def converted(value: Any) -> Any:
        try:
            return None if value is None else convert(value)
        except (_ColumnTypeError, OverflowError):
            return None

    return pa.array(map(converted, values), arrow_type(column))


def _converter(column: ColumnType) -> _Convert:
    if isinstance(column, str):
        return _PLAIN[column]
    if isinstance(column, ListColumn):
        element = _nullable(_converter(column.element))
        return lambda values: [element(value) for value in _checked(values, (list, set, frozenset, tuple))]
    if isinstance(column, MapColumn):
        key, value = _converter(column.key), _nullable(_converter(column.value))
        return lambda pairs: [(key(k), value(v)) for k, v in _checked(pairs, (dict,)).items()]
    return _struct_converter([(name, _nullable(_converter(kind))) for name, kind in column.fields])


def _struct_converter(fields: list[tuple[str, _Convert]]) -> _Convert:
    def convert(value: Any) -> dict[str, Any]:
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            if len(value) != len(fields):
                raise _ColumnTypeError
            parts: Any = value
        elif isinstance(value, dict):
            parts = [value.get(name) for name, _ in fields]
        elif isinstance(value, tuple) or dataclasses.is_dataclass(value):
            parts = [getattr(value, name, None) for name, _ in fields]
        else:
            raise _ColumnTypeError
        return {name: convert_part(part) for (name, convert_part), part in zip(fields, parts, strict=True)}

    return convert


def _nullable(convert: _Convert) -> _Convert:
    return lambda value: None if value is None else convert(value)


def _checked(value: Any, kinds: tuple[type, ...]) -> Any:
    if not isinstance(value, kinds):
        raise _ColumnTypeError
    return value


def _int(value: Any) -> int:
    if value not in _INT64 if isinstance(value, int) else True:
        raise _ColumnTypeError
    return int(value)


def _float(value: Any) -> float:
    number = float(_checked(value, (float, int)))
    if isinstance(value, int) and number != value:
        raise _ColumnTypeError
    return number


def _string(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name
    text = str(_checked(value, (str, UUID, time)))
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise _ColumnTypeError  # a surrogate, which UTF-8 cannot represent
    return text


def _timestamp(value: Any) -> datetime:
    moment: datetime = _checked(value, (datetime,))
    if moment != moment:
        raise _ColumnTypeError  # pandas.NaT
    return moment.replace(tzinfo=UTC) if moment.utcoffset() is None else moment.astimezone(UTC)


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        raise _ColumnTypeError
    day: date = _checked(value, (date,))
    return day


def _duration(value: Any) -> int:
    """Microseconds. Parquet has no durations."""
    return _int(_checked(value, (timedelta,)) // timedelta(microseconds=1))


def _decimal(value: Any) -> Decimal:
    number: Decimal = _checked(value, (Decimal,))
    if not number.is_finite() or number.adjusted() >= _DECIMAL_DIGITS - _DECIMAL_SCALE:
        raise _ColumnTypeError
    if number != number.quantize(_LEAST_DECIMAL, context=_ENOUGH_DIGITS):
        raise _ColumnTypeError
    return number


_PLAIN: dict[str, _Convert] = {
    "bool": lambda value: _checked(value, (bool,)),
    "int64": _int,
    "float64": _float,
    "string": _string,
    "binary": lambda value: bytes(_checked(value, (bytes,))),
    "date": _date,
    "timestamp": _timestamp,
    "duration": _duration,
    "decimal": _decimal,
}
