"""Comparison of values: of exactly the same form, or equal."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Mapping, Sequence, Set
from datetime import datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd


def exact(one: Any, other: Any) -> bool:
    """Return whether both have the same type and form: sign of zero, places, payload of a NaN, time zone, fold."""
    if type(one) is not type(other):
        return False
    match one:
        case float() | np.floating():
            return repr(one) == repr(other)  # also the sign of zero, and NaN
        case complex():
            return repr(one) == repr(other)
        case Decimal():
            return bool(one.as_tuple() == other.as_tuple())
        case _ if one is pd.NaT or one is pd.NA or (isinstance(one, np.datetime64) and np.isnat(one)):
            return repr(one) == repr(other)
        case datetime() | time():
            return repr(one) == repr(other)
        case Enum():
            return one is other
        case Mapping():
            return list(map(repr, one)) == list(map(repr, other)) and all(exact(one[key], other[key]) for key in one)
        case Sequence() | deque() if not isinstance(one, str | bytes | bytearray):
            return len(one) == len(other) and all(map(exact, one, other))
        case _ if dataclasses.is_dataclass(one):
            return all(exact(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return bool(one == other)


def equal(sent: Any, received: Any) -> bool:
    """Return whether a value is the one that was sent, possibly in another form.

    Other forms are: a plain value instead of one of a subclass or of NumPy or pandas, another zone with the same
    instant, a time without zone that has lost its fold, other zeros at the end of a decimal, a decimal zero without
    its sign, None instead of pandas' NaT or NA, and any NaN instead of another.
    """
    if exact(sent, received):
        return True
    if sent is pd.NaT or sent is pd.NA or (isinstance(sent, np.datetime64) and np.isnat(sent)):
        return received is None
    if isinstance(received, bool | np.bool_):
        return isinstance(sent, bool | np.bool_) and bool(sent == received)
    if isinstance(sent, Enum):
        return type(received) in (str, int) and received == sent
    match sent, received:
        case (float() | np.floating(), float() | np.floating()):
            if math.isnan(sent):
                return math.isnan(received)
            return float(sent) == float(received) and math.copysign(1, sent) == math.copysign(1, received)
        case (int() | np.integer(), int() | np.integer()):
            return int(sent) == int(received)
        case (int(), float()):
            return bool(sent == received)
        case (Decimal(), Decimal()):
            if sent.is_nan():
                return received.is_nan() and sent.is_snan() == received.is_snan()
            return sent == received
        case (np.datetime64(), datetime()):
            return bool(np.datetime64(received) == sent)
        case (datetime(), datetime()):
            if (sent.tzinfo is None) != (received.tzinfo is None):
                return False
            if sent.tzinfo is None:
                return sent == received and _nanosecond(sent) == _nanosecond(received)
            return _instant(sent) == _instant(received) and _nanosecond(sent) == _nanosecond(received)
        case (time(), time()):
            return sent == received
        case (str(), str()) | (bytes() | bytearray(), bytes() | bytearray()):
            return bool(sent == received)
        case (Mapping(), Mapping()):
            return sent.keys() == received.keys() and all(equal(sent[key], received[key]) for key in sent)
        case (Set(), Set()):
            return sent == received
        case (str() | bytes(), _) | (_, str() | bytes()):
            return False
        case (Sequence(), Sequence()):
            return len(sent) == len(received) and all(map(equal, sent, received))
    return False


def _instant(value: datetime) -> tuple[int, int, int]:
    """The instant, which may lie outside the years that ``astimezone`` supports."""
    offset = value.utcoffset()
    assert offset is not None
    plain = datetime(*value.timetuple()[:6], value.microsecond)  # pandas supports fewer years
    since = plain - datetime(1, 1, 1) - offset
    return since.days, since.seconds, since.microseconds


def _nanosecond(value: datetime) -> int:
    return value.nanosecond if isinstance(value, pd.Timestamp) else 0
