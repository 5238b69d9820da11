"""The values that columns of PostgreSQL keep, without a server."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from dsv2.connectors.postgres.adapters import ADAPTERS, rule_of


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    LOW = 1


class Name(str, Enum):  # noqa: UP042 (its str() is not its value)
    ADA = "Ada"


class Mode(Flag):
    ON = 1


class Pair(NamedTuple):
    a: int


NAIVE, ZONED = datetime(2024, 1, 1, 12, 0, 0, 5), datetime(2024, 1, 1, tzinfo=UTC)
SECONDS = timezone(timedelta(seconds=0.5))
NANOS = pd.Timestamp(2024, 1, 1) + pd.Timedelta(1, "ns")
REFUSED: dict[str, list[Any]] = {
    "int4": [True, 1.5, 2**31, -(2**31) - 1, Decimal("0.1"), Decimal("NaN"), Decimal("sNaN"), float("inf"), Color.RED],
    "int8": [2**63, b"1", NAIVE, Mode(0), np.datetime64("2024-01-01"), [1], 1j],
    "float8": [2**53 + 1, Decimal("0.1000000000000000055"), True, np.longdouble("0.1"), pd.NaT],
    "float4": [0.1234567890123, 2**24 + 1, 1e39, 1e-50],
    "numeric": [Decimal("sNaN"), True, np.bool_(True), 1j],
    "bool": [1, 0.0, pd.NaT],
    "text": [5, b"a", "a\0b", "\ud800", NAIVE, UUID(int=1), Color.RED, ["a"]],
    "bytea": ["a", [1], 5],
    "date": [NAIVE, pd.Timestamp(2024, 1, 1), pd.NaT, 5],
    "timestamp": [ZONED, date(2024, 1, 1), pd.NaT, NANOS, 0, np.datetime64("2024-01-01", "us")],
    "timestamptz": [NAIVE, date(2024, 1, 1), pd.NaT, NANOS.tz_localize("UTC"), NAIVE.replace(tzinfo=SECONDS)],
    "time": [time(1, tzinfo=UTC), time(1, tzinfo=ZoneInfo("America/New_York")), NAIVE, pd.NaT],
    "timetz": [time(1), time(1, tzinfo=ZoneInfo("America/New_York")), NAIVE],
    "interval": [5, pd.Timedelta(1, "ns"), pd.NaT, np.timedelta64(1, "s")],
    "uuid": [1, UUID(int=1).bytes],
    "json": [{1: "a"}, {"a": float("nan")}, (1,), Pair(1), {"a": ZONED}, {"a": Decimal(1)}, {1}, b"1"],
    "inet": [5, b"a", None.__class__],
    "xml": [5],
}
REFUSED_ARRAYS: dict[str, list[Any]] = {
    "int4": [(1, 2), {1}, [1.5], [[1], []], np.array([1]), 5],
    "timestamptz": [[NAIVE]],
    "text": [[1], [b"a"]],
}
LIMITED: list[tuple[str, int, Any, Any]] = [
    ("varchar", 3 + 4, "abc", "abc "),
    ("bpchar", 3 + 4, "ab", "abcd"),
    ("numeric", (5 << 16 | 2) + 4, Decimal("1.2500"), Decimal("1.255")),
    ("numeric", (5 << 16 | 2) + 4, 1.25, 1.255),
    ("numeric", (5 << 16 | 0x7FF) + 4, Decimal(120), Decimal(125)),  # numeric(5, -1)
    ("numeric", (76 << 16 | 38) + 4, Decimal("1" * 38 + "." + "1" * 38), Decimal("1." + "1" * 39)),
    ("timestamp", 3, NAIVE.replace(microsecond=5000), NAIVE),
    ("timestamptz", 0, ZONED, ZONED.replace(microsecond=1)),
    ("time", 5, time(1, microsecond=10), time(1, microsecond=5)),
]


def sent(kind: str, value: Any, modifier: int = -1, *, is_array: bool = False) -> Any:
    info = ADAPTERS.types[kind]
    return rule_of(info.array_oid if is_array else info.oid, modifier)(value)


@pytest.mark.parametrize("kind", REFUSED)
def test_values_that_the_server_would_change_are_refused(kind: str) -> None:
    for value in REFUSED[kind]:
        with pytest.raises((ValueError, TypeError, ArithmeticError)):
            print(kind, repr(value), sent(kind, value))


@pytest.mark.parametrize("kind", REFUSED_ARRAYS)
def test_arrays_that_the_server_would_change_are_refused(kind: str) -> None:
    for value in REFUSED_ARRAYS[kind]:
        with pytest.raises(ValueError, match=r"."):
            sent(kind, value, is_array=True)


@pytest.mark.parametrize(("kind", "modifier", "kept", "refused"), LIMITED)
def test_limits_of_types(kind: str, modifier: int, kept: Any, refused: Any) -> None:
    assert sent(kind, kept, modifier) == kept
    assert sent(kind, refused) == (Decimal(repr(refused)) if isinstance(refused, float) else refused)
    with pytest.raises(ValueError, match="expected"):
        sent(kind, refused, modifier)


def test_subclasses_are_sent_as_their_values() -> None:
    assert [type(value) for value in (sent("int4", Level.LOW), sent("text", Name.ADA))] == [int, str]
    assert (sent("int4", Level.LOW), sent("text", Name.ADA), sent("mood" if False else "xml", Name.ADA)) == (
        1,
        "Ada",
        "Ada",
    )
    assert str(sent("float8", -0.0)) == "-0.0"
    assert sent("float4", 0.1) == 0.1
    assert sent("float4", float(np.float32(0.1))) == float(np.float32(0.1))
    assert np.isnan(sent("float8", Decimal("NaN")))
    assert sent("json", {"a": [1, None, "\ud800"]}) == '{"a": [1, null, "\\ud800"]}'
    assert sent("json", '{"a": 1}') == '{"a": 1}'
