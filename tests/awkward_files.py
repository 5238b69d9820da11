"""Values that formats of files easily change, as records of a ``FileSink``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import zip_longest
from math import inf, nan
from typing import Any

TEXTS = ["", " lead", "trail ", " ", "\t", "\n", "\r", "\r\n", "a\\", "\\N", "C:\\temp\\new", '"', '""', 'a "b", c']
TEXTS += ["'", ",", "\0", "\ufeff", "\ufeffa", "\x85", "\u2028", "null", "NaN", "#", "é", "e\u0301", "😀", "{}"]
TEXTS += ["x" * 1_200_000]
INTS = [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, nan, inf, -inf, 1e-320, 1.7976931348623157e308, 1e16, 0.1]
TIMES = [
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1800, 1, 1, 0, 0, 0, 1, tzinfo=timezone(-timedelta(hours=4, minutes=56, seconds=2))),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2024, 1, 1, 0, 0, 0, 123_456, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]
DAYS = [date.min, date(1582, 10, 10), date(2024, 2, 29), date.max]
PRICES = [Decimal("0E-18"), Decimal("1E-18"), Decimal("-1.5"), Decimal("9" * 20 + "." + "9" * 18)]
RAW = [b"", b"\0a", bytes(range(256)), b"text"]


@dataclass
class Awkward:
    """One value of each type."""

    text: str | None
    number: int | None
    ratio: float | None
    at: datetime | None
    day: date | None
    price: Decimal | None
    raw: bytes | None
    flag: bool | None


@dataclass
class AwkwardNested:
    """The same values in lists and as keys and values of maps."""

    n: int
    texts: list[str | None]
    by_text: dict[str, str | None]
    by_flag: dict[bool, int]
    by_number: dict[int, float]
    by_day: dict[date, datetime]
    by_raw: dict[bytes, Decimal]


RECORDS = [
    Awkward(*values)  # type: ignore[arg-type]
    for values in zip_longest(TEXTS, INTS, FLOATS, TIMES, DAYS, PRICES, RAW, [True, False], fillvalue=None)
]
NESTED = [
    AwkwardNested(
        1,
        [*TEXTS, None],
        dict.fromkeys(TEXTS, "") | {"none": None},
        {True: 1, False: 0},
        dict(zip(INTS, FLOATS[3:], strict=False)),
        dict(zip(DAYS, TIMES, strict=False)),
        dict(zip(RAW, PRICES, strict=True)),
    ),
    AwkwardNested(2, [], {}, {}, {}, {}, {}),
]


def as_text(record: Any) -> str:
    """Text that is the same for equal values only: of numbers that are not numbers, and with times in UTC."""
    values = record if isinstance(record, dict) else vars(record)
    return repr({name: _plain(value) for name, value in values.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=UTC)
    if isinstance(value, Decimal):
        return f"{value:f}".rstrip("0")
    if isinstance(value, dict):
        return [(_plain(key), _plain(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [tuple(map(_plain, item)) if isinstance(item, tuple) else _plain(item) for item in value]
    return value
