"""The values of a table in the records of ``PostgresSource``: an equal Python value, the server's text, or an error."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from dsv2 import CollectSink, DeadLetter, ErrorPolicy
from dsv2.connectors.postgres import RowChange, UndecodedValue
from dsv2.connectors.postgres.change_decoder import ChangeDecoder
from dsv2.errors import UserFunctionError
from dsv2.jobs.handle import Trigger
from dsv2.sources import SplitBatch
from tests.postgres_values import KEPT, OTHER_FORMS, TYPES
from tests.replicated_tables import Run, Table
from tests.support import local_environment

NewTable: TypeAlias = Callable[[str], Table]

REFUSED: dict[str, list[str]] = {
    "date": ["infinity", "0044-03-15 BC", "10000-01-01"],
    "timestamp": ["-infinity", "0001-12-31 23:00 BC"],
    "timestamptz": ["infinity", "10000-01-01 00:00+00"],
    "time": ["24:00:00"],
    "interval": ["1 mon", "1 year -3 days", "5000000 years"],
    "json": ['{"a": 1e400}', '{"a": 1, "a": 2}'],
    "jsonb": ["-1" + "0" * 400 + ".5"],
    "date[]": ["{2024-01-01,infinity}"],
    "payday": ["infinity"],
}
CASES = [(kind, text, value) for kind, values in KEPT.items() for text, value in values]
CASES += [(kind, text, ...) for kind, texts in REFUSED.items() for text in texts]


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
    new_table("id int").execute(TYPES)
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
