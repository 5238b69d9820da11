"""The values of a table in the records of ``PostgresSource``: an equal Python value, the server's text, or an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from datetime import time as day_time
from decimal import Decimal
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from dsv2 import CollectSink, DeadLetter, ErrorPolicy, UserFunctionError
from dsv2.connectors.postgres import RowChange, UndecodedValue
from dsv2.connectors.postgres.change_decoder import ChangeDecoder
from dsv2.job import Trigger
from dsv2.sources import SplitBatch
from tests.followed import Run, Table
from tests.support import local_environment

NewTable: TypeAlias = Callable[[str], Table]

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
    "workday": [("2024-02-29", date(2024, 2, 29))],
    "point": [("(1,2)", "(1,2)")],
}
REFUSED: dict[str, list[str]] = {
    "date": ["infinity", "0044-03-15 BC", "10000-01-01"],
    "timestamp": ["-infinity", "0001-12-31 23:00 BC"],
    "timestamptz": ["infinity", "10000-01-01 00:00+00"],
    "time": ["24:00:00"],
    "interval": ["1 mon", "1 year -3 days", "5000000 years"],
    "json": ['{"a": 1e400}', '{"a": 1, "a": 2}'],
    "jsonb": ["-1" + "0" * 400 + ".5"],
    "date[]": ["{2024-01-01,infinity}"],
    "workday": ["infinity"],
}
CASES = [(kind, text, value) for kind, values in KEPT.items() for text, value in values]
CASES += [(kind, text, ...) for kind, texts in REFUSED.items() for text in texts]
OTHER_FORMS = (
    "-ctimezone=America/New_York -cdatestyle=German -cintervalstyle=iso_8601 -cbytea_output=escape "
    "-cextra_float_digits=-10 -cstandard_conforming_strings=off"
)


@pytest.fixture(params=["UTC", "America/New_York"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The time zone of the process."""
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def outcomes(run: Run) -> dict[int, Any]:
    """The value of the column of each row, or its error, by the number of the row."""
    found = {}
    for batch in run.batches():
        assert isinstance(batch, SplitBatch)
        assert batch.decode is not None
        for change in batch.values:
            try:
                record = batch.decode(change)
                assert record is not None
                if record.row is not None:
                    found[record.key[0]] = record.row[f"c{record.key[0]}"]
            except ValueError as error:
                raw = batch.raw(change) if batch.raw else None
                assert isinstance(raw, RowChange)
                found[raw.key[0]] = error
    return found


def test_every_value_is_equal_or_refused(new_table: NewTable, zone: str) -> None:
    if zone == "UTC":
        new_table("id int").execute(
            "CREATE TYPE mood AS ENUM ('so so')", "CREATE TYPE pair AS (n int, t text)", "CREATE DOMAIN workday AS date"
        )
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _, _) in enumerate(CASES))
    table = new_table(f"id int PRIMARY KEY, {columns}")
    inserts = [
        f"INSERT INTO {{}} (id, c{number}) VALUES ({number}, $text${text.replace('{', '{{').replace('}', '}}')}$text$)"
        for number, (_, text, _) in enumerate(CASES)
    ]
    table.execute("SET timezone = 'UTC'", *inserts)
    options = f"{table.conninfo} options='{OTHER_FORMS}'" if zone != "UTC" else table.conninfo
    run = Run(table.source(decode=dict, conninfo=options))
    assert run.plan_next()
    snapshot = outcomes(run)
    while run.plan_next():
        pass
    table.execute("SET timezone = 'UTC'", "DELETE FROM {}", *inserts)
    assert run.plan_next()
    for found in (snapshot, outcomes(run)):
        assert found.keys() == set(range(len(CASES)))
        for number, (kind, text, value) in enumerate(CASES):
            if value is ...:
                assert f"Column c{number} of {table.name} has for key ({number}) a " in str(found[number]), (kind, text)
                assert f"pass text_columns=['c{number}'] to PostgresSource" in str(found[number])
            else:
                assert repr(found[number]) == repr(value), (kind, text)


FAIL, SET_ASIDE = ErrorPolicy(), ErrorPolicy().dead_letter(ValueError)


@pytest.fixture
def table_of_times(new_table: NewTable) -> Table:
    """A table with an infinite time in row 2."""
    table = new_table("id int PRIMARY KEY, until timestamptz")
    table.execute("INSERT INTO {} VALUES (1, '2024-01-01 00:00+00'), (2, 'infinity'), (3, NULL)")
    return table


def read(table: Table, checkpoint: Path, policy: ErrorPolicy, skips: Any = None, **options: Any) -> list[Any]:
    """The keys and values that a job reads, and its dead letters."""
    env, rows, letters = local_environment(1), CollectSink[RowChange[Any]](), CollectSink[DeadLetter[RowChange[Any]]]()
    source = table.source(decode=lambda row: row["until"], **options)
    stream = env.from_source(source).with_uid("in").with_error_policy(policy)
    stream.to_sink(rows).with_uid("out")
    if policy is SET_ASIDE:
        stream.dead_letters(RowChange).to_sink(letters).with_uid("letters")
    env.execute(checkpoint_location=str(checkpoint), trigger=Trigger.available_now(), skip_records=skips)
    return [*((change.key[0], change.row) for change in rows.results), *letters.results]


@pytest.mark.parametrize("remedy", ["skip", "set aside", "text"])
@pytest.mark.parametrize("is_change", [False, True])
def test_job_continues_after_an_undecodable_value(
    table_of_times: Table, tmp_path: Path, is_change: bool, remedy: str
) -> None:
    table, rest = table_of_times, [(1, datetime(2024, 1, 1, tzinfo=UTC)), (3, None)]
    if is_change:
        table.execute("CREATE TABLE {0}_rows AS SELECT * FROM {0}", "DELETE FROM {}")
        assert read(table, tmp_path, FAIL) == []
        table.execute("INSERT INTO {0} TABLE {0}_rows")
    with pytest.raises(UserFunctionError, match=r"for key \(2\) a timestamptz that equals no .*: 'infinity'") as failed:
        read(table, tmp_path, FAIL)
    place = failed.value.position
    assert place is not None
    assert (place.source, place.split) == ("in", "log" if is_change else "snapshot-0")
    if remedy == "skip":
        assert read(table, tmp_path, FAIL, skips={"in": [(place.split, place.offset)]}) == rest
    elif remedy == "text":
        texts = [(1, "2024-01-01 00:00:00+00"), (2, "infinity"), (3, None)]
        assert read(table, tmp_path, FAIL, text_columns=["until"]) == texts
    else:
        *kept, letter = read(table, tmp_path, SET_ASIDE)
        assert kept == rest
        reason = "timestamp too large (after year 10K): 'infinity'"
        undecoded = UndecodedValue("until", "timestamptz", "infinity", reason)
        assert (letter.record.key, letter.record.row) == ((2,), {"id": 2, "until": undecoded})
        assert letter.position == place


def test_dead_letter_is_decoded_again() -> None:
    undecoded = UndecodedValue("until", "date", "infinity", "too late")
    letter = RowChange("update", (undecoded,), {"until": undecoded, "name": None})
    with pytest.raises(ValueError, match=r"Column until of t has for key \(.*\) a date that equals no .*: 'infinity'"):
        ChangeDecoder("t", dict, frozenset()).decoded_again(letter)
    text = RowChange("update", ("infinity",), {"until": "infinity", "name": None})
    decoder = ChangeDecoder[dict[str, Any]]("t", dict, frozenset({"until", "name"}))
    assert decoder.decoded_again(letter) == text
    assert decoder.decoded_again(RowChange("delete", (undecoded,), None)) == RowChange("delete", ("infinity",), None)
    with pytest.raises(ValueError, match="contains no text of column until, but the value datetime"):
        decoder.decoded_again(RowChange("insert", (1,), {"until": date.min}))
    absent = UndecodedValue("name", "text", None, "the log does not contain it")
    with pytest.raises(ValueError, match=r"does not log large values .* of column name of t"):
        decoder.decoded_again(RowChange("update", (1,), {"name": absent}))
