"""Values and columns as columns of a type, if that keeps each value and its meaning."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from datetime import date, datetime
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa

from dsv2.errors import SchemaError

_INT64: Final = pa.int64()
_TAKEN: Final[dict[pa.DataType, tuple[type, ...]]] = {
    _INT64: (int, np.integer),
    pa.float64(): (float, int, np.float32, np.float16, np.signedinteger),
    pa.string(): (str,),
    pa.binary(): (bytes, bytearray),
    pa.date32(): (date,),
    pa.timestamp("us"): (datetime,),
}
"""The classes of values, for types whose columns Arrow also makes of others: whole numbers of floats, for example."""


def array_of(values: Sequence[Any], kind: pa.DataType, where: str) -> pa.Array:
    """Return Python values as an array.

    Args:
        values: The values. None is null.
        kind: A type of ``schema_of``.
        where: The column, for the error message.

    Raises:
        SchemaError: A value is of another class, or does not fit.
    """
    if kind == _INT64:
        try:  # faster than Arrow, and stricter
            return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array("q", values))])
        except (TypeError, OverflowError):
            pass  # a value is None or does not fit
    if pa.types.is_list(kind):
        return _lists(values, kind, where)
    if kind in _TAKEN:
        values = _checked(values, kind, where)
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"{where}, which is {kind}, contains a value that does not fit: {error}") from error


def _lists(values: Sequence[Any], kind: pa.DataType, where: str) -> pa.Array:
    _check_classes(values, (list,), kind, where)
    absent = None
    if None in values:
        absent = pa.array([value is None for value in values], pa.bool_())
        values = [value or () for value in values]
    offsets = np.cumsum(np.fromiter(chain((0,), map(len, values)), np.int32), dtype=np.int32)
    inner = array_of(list(chain.from_iterable(values)), kind.value_type, where)
    return pa.ListArray.from_arrays(pa.array(offsets), inner, type=kind, mask=absent)


def _checked(values: Sequence[Any], kind: pa.DataType, where: str) -> Sequence[Any]:
    """The values, if their classes are those of the type. A bool is a whole number."""
    found = _check_classes(values, _TAKEN[kind], kind, where)
    if pa.types.is_date(kind) and any(issubclass(own, datetime) for own in found):
        raise _misfit(next(value for value in values if isinstance(value, datetime)), kind, where, "Take its date")
    if pa.types.is_timestamp(kind):
        for value in values:
            if value is not None and value.tzinfo is not None:
                remedy = "Convert it to UTC and remove its time zone, or use int for ms since 1970"
                raise _misfit(value, kind, where, remedy, " with a time zone")
            if getattr(value, "nanosecond", 0):  # of pandas; NaT has NaN
                remedy = "Use None" if value != value else "Round it to microseconds"
                raise _misfit(value, kind, where, remedy)
    if bool in found and kind == _INT64:
        return [None if value is None else int(value) for value in values]
    return values


def _check_classes(values: Sequence[Any], taken: tuple[type, ...], kind: pa.DataType, where: str) -> set[type]:
    found = set(map(type, values)) - {type(None)}
    for own in found:
        if not issubclass(own, taken):
            value = next(value for value in values if type(value) is own)
            raise _misfit(value, kind, where, "Convert the value, or declare the field with its class")
    return found


def _misfit(value: Any, kind: pa.DataType, where: str, remedy: str, note: str = "") -> SchemaError:
    what = f"{value!r:.80} ({type(value).__qualname__}{note})"
    return SchemaError(f"{where}, which is {kind}, contains a value that does not fit: {what}. {remedy}.")


def may_be_cast(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a column keeps its values and their meaning in another type, if they fit.

    Args:
        given: The type of the column.
        wanted: A type of ``schema_of``.
    """
    if given == wanted or pa.types.is_null(given):
        return True
    if pa.types.is_dictionary(given):
        return may_be_cast(given.value_type, wanted)
    if pa.types.is_list(wanted):
        return _is_any_list(given) and may_be_cast(given.value_type, wanted.value_type)
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(given)) and given.tz == wanted.tz
    return any(is_one(wanted) and is_other(given) for is_one, is_other in _EXACT)


def cast_exactly(column: pa.Array | pa.ChunkedArray, kind: pa.DataType, where: str) -> pa.Array | pa.ChunkedArray:
    """Return a column in another type.

    Args:
        column: The column.
        kind: A type of ``schema_of``.
        where: The column, for the error message.

    Raises:
        SchemaError: The types are too different, or a value does not fit.
    """
    if column.type == kind:
        return column
    if not may_be_cast(column.type, kind):
        raise SchemaError(
            f"{where}, which is {kind}, cannot hold a column of {column.type}. {_remedy(column.type, kind)}."
        )
    try:
        return column.cast(kind, safe=True)
    except pa.ArrowException as error:
        raise SchemaError(f"{where}, which is {kind}, cannot hold a value of {column.type}: {error}") from error


def _remedy(given: pa.DataType, wanted: pa.DataType) -> str:
    if pa.types.is_timestamp(given) and given.tz is not None and pa.types.is_timestamp(wanted):
        return "Convert it to UTC and remove the time zone (in pandas tz_convert('UTC').dt.tz_localize(None))"
    if pa.types.is_floating(given) and pa.types.is_integer(wanted):
        return "Cast it, or declare the field as float. In pandas, whole numbers with missing values are 'Int64'"
    return "Cast the column, or declare the field with its type"


def _is_any_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_exact_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    views = pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(views or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


_EXACT: Final = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_floating, _is_number),
    (pa.types.is_decimal, _is_exact_number),
    (pa.types.is_string, _is_text),
    (pa.types.is_binary, _is_bytes),
    (pa.types.is_date32, pa.types.is_date),
)
"""The kinds of types that are cast, with the kinds that they are cast from. Arrow checks that each value fits."""
