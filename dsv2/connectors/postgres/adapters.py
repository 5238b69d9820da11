"""The conversions between the server's values and Python values that psycopg makes for this connector.

They are those of psycopg, whatever the program registers with psycopg, except where those change a value.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal
from json import JSONDecoder
from typing import Any

from psycopg import DataError
from psycopg.abc import Buffer
from psycopg.adapt import AdaptersMap, Loader
from psycopg.postgres import register_default_adapters, register_default_types
from psycopg.pq import Format
from psycopg.types import TypesRegistry
from psycopg.types.array import register_all_arrays
from psycopg.types.multirange import MultirangeInfo
from psycopg.types.range import RangeInfo
from psycopg.types.string import TextLoader

__all__ = ("ADAPTERS", "is_same_conversion")

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
    _json = JSONDecoder(parse_float=_finite)

    def load(self, data: Buffer) -> Any:
        return self._json.decode(bytes(data).decode())


class _JsonLoader(_JsonbLoader):
    _json = JSONDecoder(parse_float=_finite, object_pairs_hook=_unique)  # unlike jsonb, json keeps duplicates


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
    """Whether values of these types are converted in the same way, such as integers of several sizes."""
    loaders = [ADAPTERS.get_loader(each, Format.TEXT) or ADAPTERS.get_loader(0, Format.TEXT) for each in (oid, other)]
    return loaders[0] is loaders[1]
