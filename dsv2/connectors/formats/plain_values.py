"""Scalars of NumPy and pandas, and of subclasses, as values of the standard library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

_CONVERSIONS: Mapping[type, Callable[[Any], Any]] = {  # datetime before date, of which it is a subclass
    int: int,
    float: float,
    str: str.__str__,
    bytes: bytes,
    bytearray: bytes,
    datetime: lambda value: datetime.combine(value.date(), value.timetz()),
    date: lambda value: date(value.year, value.month, value.day),
    Decimal: Decimal,
}
_EXACT = (bool, int, float, str, bytes, datetime, date, Decimal)


def plain(value: Any) -> Any:
    """Return ``value`` as an equal value of the standard library.

    Returns:
        ``value`` itself if there is none, as for NaT, nanoseconds and arrays.
    """
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        item = value.item()
        is_time = isinstance(value, numpy.datetime64 | numpy.timedelta64)  # None for NaT, an int for nanoseconds
        if type(item) not in _EXACT or (is_time and not isinstance(item, date)):
            return value
        value = item
    if type(value) in _EXACT:
        return value
    if isinstance(value, datetime):
        nanoseconds: Any = getattr(value, "nanosecond", 0)  # of pandas
        if value != value or nanoseconds:
            return value
    for kind, convert in _CONVERSIONS.items():
        if isinstance(value, kind):
            return convert(value)
    return value
