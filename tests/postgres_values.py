"""Values of PostgreSQL that are equal to a Python value, or read as text."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as day_time
from decimal import Decimal
from ipaddress import IPv4Interface, IPv4Network
from typing import Any
from uuid import UUID

TYPES = (
    "DO $$ BEGIN CREATE TYPE mood AS ENUM ('so so'); CREATE TYPE pair AS (n int, t text); "
    "CREATE DOMAIN payday AS date; EXCEPTION WHEN duplicate_object THEN NULL; END $$"
)
"""A statement that creates the types of a user in ``KEPT``."""

LIMITS = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
KEPT: dict[str, list[tuple[str, Any]]] = {
    "smallint": [("-32768", -(2**15))],
    "bigint": [("9223372036854775807", 2**63 - 1)],
    "real": [("0.1", 0.1), ("-0", -0.0), ("inf", float("inf"))],
    "double precision": [("0.1234567890123456", 0.1234567890123456), ("5e-324", 5e-324), ("NaN", float("nan"))],
    "numeric": [("NaN", Decimal("NaN")), ("-Infinity", Decimal("-Infinity")), ("1e-400", Decimal("1e-400"))],
    "numeric(76, 38)": [("1" * 38, Decimal("1" * 38 + "." + "0" * 38))],
    "money": [("1234.5", "$1,234.50")],
    "boolean": [("no", False)],
    "text": [("", ""), ("NULL", "NULL"), (" \t\r\n\\N\\.", " \t\r\n\\N\\."), ("\ufeffe\u0301", "\ufeffe\u0301")],
    "char(4)": [("ab", "ab  ")],
    '"char"': [("a", "a")],
    "bytea": [("\\x00ff5c", b"\0\xff\\"), ("", b"")],
    "uuid": [("00000000-0000-0000-0000-00000000000a", UUID(int=10))],
    "date": [("0001-01-01", date.min), ("9999-12-31", date.max)],
    "timestamp": [("2024-02-29 23:59:59.999999", datetime(2024, 2, 29, 23, 59, 59, 999999))],
    "timestamptz": [("0001-01-01 00:00+00", LIMITS[0]), ("9999-12-31 23:59:59.999999+00", LIMITS[1])],
    "time": [("23:59:59.999999", day_time.max)],
    "timetz": [("01:00+05:30:15", day_time(1, tzinfo=timezone(timedelta(hours=5, minutes=30, seconds=15))))],
    "interval": [
        ("-1 day 2 hours 3.5 seconds", timedelta(days=-1, hours=2, seconds=3.5)),
        ("0", timedelta()),
        ("-0.000001 seconds", timedelta(microseconds=-1)),
    ],
    "json": [('{"a": [1, null], "b": 12345678901234567890123}', {"a": [1, None], "b": 12345678901234567890123})],
    "jsonb": [('{"a": 1, "a": 2}', {"a": 2}), ("null", None), ('"\\u00e9"', "é"), ("1.5", 1.5), ("-1e400", -(10**400))],
    "int[]": [("{}", []), ("{{1,NULL},{3,4}}", [[1, None], [3, 4]]), ("[0:1]={1,2}", [1, 2])],
    "text[]": [('{NULL,"NULL","a,b"}', [None, "NULL", "a,b"])],
    "int4range": [("[1,5]", "[1,6)"), ("empty", "empty"), ("(,)", "(,)")],
    "daterange": [("[2024-01-01,infinity)", "[2024-01-01,infinity)")],
    "datemultirange[]": [('{"{[2024-01-01,2024-01-02)}"}', ["{[2024-01-01,2024-01-02)}"])],
    "inet": [("10.0.0.1/8", IPv4Interface("10.0.0.1/8"))],
    "cidr": [("10.0.0.0/8", IPv4Network("10.0.0.0/8"))],
    "bit(3)": [("101", "101")],
    "xml": [("<a/>", "<a/>")],
    "tsvector": [("b a", "'a' 'b'")],
    "mood": [("so so", "so so")],
    "mood[]": [('{"so so"}', '{"so so"}')],
    "pair": [("(1,x)", "(1,x)")],
    "payday": [("2024-02-29", date(2024, 2, 29))],
    "point": [("(1,2)", "(1,2)")],
}
"""Literals and their values by type."""

OTHER_FORMS = (
    "-ctimezone=America/New_York -cdatestyle=German -cintervalstyle=iso_8601 -cbytea_output=escape "
    "-cextra_float_digits=-10 -cstandard_conforming_strings=off"
)
"""Settings of a session that would change the text of values."""
