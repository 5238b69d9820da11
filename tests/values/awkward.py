"""Awkward values of every supported type, in groups that are rows of ``docs/values.md``."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, make_dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from ipaddress import ip_address, ip_network
from math import inf, nan
from pathlib import PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd


class Group(NamedTuple):
    """Values that every way is expected to treat alike.

    Attributes:
        family: The heading on the page.
        name: The row on the page.
        annotation: The declared type of a field with such a value.
        values: The values.
    """

    family: str
    name: str
    annotation: Any
    values: tuple[Any, ...]


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 0
    HIGH = 1


class Unit(StrEnum):
    EMPTY = ""
    METRE = "m"


class Access(Flag):
    NONE = 0
    READ = 1
    WRITE = 2


class Mode(IntFlag):
    NONE = 0
    ONE = 1
    FOUR = 4


@dataclass(frozen=True)
class Place:
    city: str
    zip_code: int | None = None


@dataclass(frozen=True)
class Visit:
    place: Place | None
    notes: tuple[str, ...] = ()


class Pair(NamedTuple):
    first: int | None
    second: str


# The classes of values that are not built in, which a job registers.
CLASSES: tuple[type, ...] = (Color, Level, Unit, Access, Mode, Place, Visit, Pair)

NEW_YORK = ZoneInfo("America/New_York")
_HALF_HOURS = timezone(timedelta(hours=5, minutes=30))
_SECONDS = timezone(timedelta(hours=-4, minutes=-56, seconds=-2))

_TEXTS = (
    ("letters", ("plain", "ä€😀漢", "Ω≈ç")),
    ("empty", ("",)),
    ("blanks at an end", (" lead", "trail ", "  ", "\ttab", "tab\t", "\u00a0nbsp\u00a0", "\u3000")),
    (
        "line breaks",
        ("a\nb", "\n", "a\rb", "\r", "a\r\nb", "end\r\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028\u2029"),
    ),
    ("quotes and separators", ('"', "'", '""', 'a"b', '"a', "a,b", ",", ";", "|", "a\tb", '",\n"', "%", "100%s", "{}")),
    ("backslashes", ("\\", "a\\", "\\\\", "\\N", "\\n", "C:\\temp\\new", '\\"', "\\,")),
    ("words with a meaning", ("null", "NULL", "None", "nan", "NaN", "true", "1", "1.0", "-", "#x", "=1+1", "infinity")),
    ("names with a meaning", ("__HIVE_DEFAULT_PARTITION__", "__null__", ".", "..", "a/b", "a=b", "_x", ".x")),
    ("byte order mark", ("\ufeff", "\ufeffx", "x\ufeff")),
    ("NUL", ("\0", "a\0b")),
    ("control characters", ("\x01", "\x1b[2J", "\x7f", "\x80\x9f")),
    ("normal forms", ("\u00e9", "e\u0301", "\u212b")),
    ("noncharacters", ("\uffff", "\ufffe", "\U0010ffff", "\ud7ff", "\ue000")),
    ("lone surrogates", ("\ud800", "a\udfffb", "\udcff")),
    ("1 MB", ("x" * 2**20,)),
)
_DECIMALS = (
    ("plain", ("0", "1.5", "-1.5", "12345.678", "0.000001")),
    ("zeros at the end", ("1.50", "100", "0.000", "1.500000000000000000")),
    ("exponents", ("1E+3", "1E-7", "0E+5", "0E-20", "-0", "-0.00")),
    ("28 digits", ("1234567890123456789.012345678", "-9999999999999999999999999999")),
    ("38 digits", ("12345678901234567890.123456789012345678", "-0.00000000000000000000000000000000000001")),
    ("76 digits", ("1" * 50 + "." + "2" * 26, "-" + "9" * 76, "1" + "0" * 75)),
    ("large exponents", ("1E+400", "1E-400", "1E+6000")),
    ("infinite", ("Infinity", "-Infinity")),
    ("NaN", ("NaN", "-NaN", "NaN123")),
    ("sNaN", ("sNaN", "sNaN7")),
)
_NAIVE = (
    ("plain", (datetime(2024, 2, 29, 12, 30), datetime(2024, 1, 1))),
    ("microseconds", (datetime(2024, 1, 1, 0, 0, 0, 1), datetime(2024, 1, 1, 23, 59, 59, 999_999))),
    ("before 1970", (datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1900, 1, 1), datetime(1883, 11, 18, 12, 3))),
    ("before 1582", (datetime(1582, 10, 10), datetime(1000, 2, 28, 1, 2, 3), datetime(1500, 2, 28))),
    ("years 1 and 9999", (datetime.min, datetime.max)),
    ("skipped or repeated hours", (datetime(2024, 3, 10, 2, 30), datetime(2024, 11, 3, 1, 30))),
    ("fold", (datetime(2024, 11, 3, 1, 30, fold=1),)),
)
_ZONED = (
    ("UTC", (datetime(2024, 2, 29, 12, 30, 0, 1, UTC), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC))),
    ("offsets",
     (datetime(2024, 1, 1, 5, 30, tzinfo=_HALF_HOURS), datetime(2024, 1, 1, tzinfo=timezone(-timedelta(hours=8))))),
    ("offsets with seconds", (datetime(1880, 1, 1, tzinfo=_SECONDS), datetime(1880, 1, 1, tzinfo=NEW_YORK))),
    ("time zones", (datetime(2024, 7, 1, 12, tzinfo=NEW_YORK), datetime(2024, 1, 1, tzinfo=ZoneInfo("UTC")))),
    ("repeated hour", tuple(datetime(2024, 11, 3, 1, 30, tzinfo=NEW_YORK, fold=fold) for fold in (0, 1))),
    ("skipped hour", (datetime(2024, 3, 10, 2, 30, tzinfo=NEW_YORK),)),
    ("years 1 and 9999", (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))),
    ("outside the years 1 to 9999 in UTC",
     (datetime.min.replace(tzinfo=_HALF_HOURS), datetime.max.replace(tzinfo=_SECONDS))),
)  # fmt: skip


def _groups(family: str, annotation: Any, rows: Any, convert: Any = lambda value: value) -> list[Group]:
    return [Group(family, name, annotation, tuple(map(convert, values))) for name, values in rows]


GROUPS: tuple[Group, ...] = (
    *_groups("Texts", str, _TEXTS),
    *_groups(
        "Whole numbers",
        int,
        (
            ("small", (0, 1, -1, 127, -128, 2**31 - 1, -(2**31), 2**31, 2**32)),
            ("beyond 2^53", (2**53 + 1, -(2**53) - 1, 10**17 + 1)),
            ("limits of 64 bits", (2**63 - 1, -(2**63))),
            ("beyond 64 bits", (2**63, -(2**63) - 1, 2**64 - 1, 2**64, 10**40)),
            ("10,000 digits", (10**9_999,)),
        ),
    ),
    Group("Whole numbers", "a bool", int, (True, False)),
    Group("Whole numbers", "a float", int, (1.0, 1.5)),
    Group("Truth values", "all", bool, (True, False)),
    Group("Truth values", "a number", bool, (1, 0)),
    *_groups(
        "Floating-point numbers",
        float,
        (
            ("plain", (0.0, 1.5, -0.1, 0.1 + 0.2, 2.0**53, 1e22, 123456789.123456789)),
            ("extremes", (sys.float_info.max, sys.float_info.min, 5e-324, -1e-310)),
            ("-0.0", (-0.0,)),
            ("infinite", (inf, -inf)),
            ("NaN", (nan,)),
            ("a whole number", (1, 2**53 + 1)),
        ),
    ),
    *_groups("Decimals", Decimal, _DECIMALS, Decimal),
    *_groups("Times without zone", datetime, _NAIVE),
    *_groups("Times with zone", datetime, _ZONED),
    Group("Dates and durations", "dates", date, (date(2024, 2, 29), date(1969, 12, 31))),
    Group("Dates and durations", "dates before 1582", date, (date(1582, 10, 10), date(1000, 1, 1))),
    Group("Dates and durations", "dates of the years 1 and 9999", date, (date.min, date.max)),
    Group("Dates and durations", "a datetime as date", date, (datetime(2024, 1, 1, 12),)),
    Group("Dates and durations", "times of day", time, (time(), time(23, 59, 59, 999_999), time(1, 2, 3))),
    Group("Dates and durations", "times of day with zone", time, (time(1, tzinfo=UTC), time(1, tzinfo=_HALF_HOURS))),
    Group(
        "Dates and durations", "durations", timedelta, (timedelta(), timedelta(microseconds=-1), timedelta(days=400))
    ),
    Group("Dates and durations", "greatest durations", timedelta, (timedelta.max, timedelta.min)),
    Group("Bytes", "bytes", bytes, (b"ab", bytes(range(256)), b"\0", b"\xff\xfe", b"\\x00", b"a,b\n")),
    Group("Bytes", "empty", bytes, (b"",)),
    Group("Bytes", "bytearray", bytearray, (bytearray(b"\0\xff"), bytearray())),
    Group("Optional values", "text or None", str | None, (None, "", "x")),
    Group("Optional values", "number or None", int | None, (None, 0)),
    Group("Optional values", "float or None", float | None, (None, nan, 0.0)),
    Group("Optional values", "None that is not declared", str, (None,)),
    Group("Enumerations", "Enum", Color, tuple(Color)),
    Group("Enumerations", "IntEnum", Level, tuple(Level)),
    Group("Enumerations", "StrEnum", Unit, tuple(Unit)),
    Group("Enumerations", "Flag", Access, (Access.READ, Access.READ | Access.WRITE, Access(0))),
    Group("Enumerations", "IntFlag", Mode, (Mode.ONE, Mode.ONE | Mode.FOUR, Mode(0))),
    Group(
        "Other types", "UUID", UUID, (UUID(int=0), UUID(int=2**128 - 1), UUID("12345678-1234-5678-1234-567812345678"))
    ),
    Group("Other types", "Fraction", Fraction, (Fraction(1, 3), Fraction(-2))),
    Group("Other types", "complex", complex, (1j, complex(-0.0, 2))),
    Group(
        "Other types",
        "paths and addresses",
        object,
        (PurePosixPath("a/b"), ip_address("::1"), ip_network("10.0.0.0/8")),
    ),
    Group("Classes", "nested, optional", Visit, (Visit(None), Visit(Place("", None), ("a", "")), Visit(Place("x", 0)))),
    Group("Classes", "NamedTuple", Pair, (Pair(None, ""), Pair(1, "x"))),
    Group("Containers", "list", list[int], ([], [1, -1], [2**53 + 1])),
    Group("Containers", "list of optional values", list[int | None], ([None], [1, None])),
    Group("Containers", "list of lists", list[list[str]], ([], [[]], [["", "a"], []])),
    Group("Containers", "tuple", tuple[int, str], ((1, "x"), (0, ""))),
    Group("Containers", "map with texts as keys", dict[str, int], ({}, {"": 0}, {"b": 1, "a": 2}, {"a.b": 1, "%": 2})),
    Group("Containers", "map with other keys", dict[int, str], ({1: "x", -1: ""}, {2**53 + 1: "y"})),
    Group("Containers", "set", set[str], (set(), {"a", "b", "c"})),
    Group("Containers", "frozenset", frozenset[int], (frozenset(), frozenset({1, 2}))),
    Group("Containers", "nested", dict[str, list[Place]], ({"x": [Place("a"), Place("b", 1)]}, {"y": []})),
    Group(
        "Containers",
        "of collections",
        object,
        (deque([1], 3), Counter("aab"), OrderedDict(b=1, a=2), defaultdict(int, x=1)),
    ),
    Group("NumPy and pandas", "NumPy whole numbers", int, (np.int64(-(2**63)), np.int8(-1), np.uint64(2**64 - 1))),
    Group("NumPy and pandas", "NumPy floats", float, (np.float64(-0.0), np.float64(nan), np.float32(0.1))),
    Group("NumPy and pandas", "NumPy bool", bool, (np.bool_(True), np.bool_(False))),
    Group("NumPy and pandas", "NumPy text", str, (np.str_(" x\n"), np.str_(""))),
    Group("NumPy and pandas", "NumPy datetime64", datetime, (np.datetime64("2024-01-01T00:00:00.000001"),)),
    Group("NumPy and pandas", "NumPy NaT", datetime, (np.datetime64("NaT"),)),
    Group(
        "NumPy and pandas", "pandas Timestamp", datetime, (pd.Timestamp("2024-01-01 12:00:00.000001"), pd.Timestamp(0))
    ),
    Group("NumPy and pandas", "pandas Timestamp with nanoseconds", datetime, (pd.Timestamp(1),)),
    Group(
        "NumPy and pandas", "pandas Timestamp with zone", datetime, (pd.Timestamp("2024-07-01", tz="America/New_York"),)
    ),
    Group("NumPy and pandas", "pandas NaT", datetime, (pd.NaT,)),
    Group("NumPy and pandas", "pandas NaT, optional", datetime | None, (pd.NaT, None)),
    Group("NumPy and pandas", "pandas NA", int, (pd.NA,)),
)


def _holder_of(number: int, annotation: Any) -> type:
    """A frozen dataclass with a ``position`` and a ``value`` of the annotation. This module has it."""
    fields = [("position", int), ("value", annotation)]
    return make_dataclass(f"Holder{number}", fields, frozen=True, namespace={"__module__": __name__})


_HOLDERS: dict[str, type] = {}
for _group in GROUPS:
    if str(_group.annotation) not in _HOLDERS:
        _class = _holder_of(len(_HOLDERS), _group.annotation)
        _HOLDERS[str(_group.annotation)] = globals()[_class.__name__] = _class


# All values. A position in this list names a value in every process.
VALUES: tuple[tuple[Group, Any], ...] = tuple((group, value) for group in GROUPS for value in group.values)


def value_at(position: int) -> Any:
    """The value at this position."""
    return VALUES[position][1]


def annotation_at(position: int) -> Any:
    """The declared type of the value at this position."""
    return VALUES[position][0].annotation


def group_at(position: int) -> Group:
    """The group of the value at this position."""
    return VALUES[position][0]


def holder_of(annotation: Any) -> Any:
    """The class of records with a ``position`` and a ``value`` of this type."""
    return _HOLDERS[str(annotation)]
