"""The values that ``PostgresSink`` writes: ``PostgresSource`` reads them equal, or they are refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from components.postgres import PostgresServer
from dsv2 import JobError
from dsv2.connectors.postgres import PostgresSink
from dsv2.connectors.postgres.server import Connection, Server
from dsv2.connectors.postgres.settings import PostgresConnection
from dsv2.model import RecordBatch
from dsv2.sinks import SinkBatch, SinkInfo
from tests.durations import ms
from tests.postgres_values import KEPT, OTHER_FORMS, TYPES
from tests.replicated_tables import Run, Table

NewTable: TypeAlias = Callable[[str], Table]

NEW_YORK = ZoneInfo("America/New_York")
ODD = 'Odd %s."'
CASES = [(kind, value, value) for kind, values in KEPT.items() for _, value in values if value != "é"]
CONVERTED: list[tuple[str, Any, Any]] = [
    ("int", np.int8(-5), -5),
    ("int", 2.0, 2),
    ("bigint", "12", 12),
    ("boolean", np.True_, True),
    ("numeric", 0.1234567890123456, Decimal("0.1234567890123456")),
    ("numeric", 2**200, Decimal(2**200)),
    ("numeric(5, 2)", Decimal("1.2300"), Decimal("1.23")),
    ("double precision", Decimal("0.1"), 0.1),
    ("double precision", np.float32(0.5), 0.5),
    ("timestamptz", pd.NaT, None),
    ("date", pd.NaT, None),
    ("text", pd.NA, None),
    ("timestamptz", datetime(2024, 11, 3, 1, 30, fold=1, tzinfo=NEW_YORK), datetime(2024, 11, 3, 6, 30, tzinfo=UTC)),
    ("timestamptz", datetime(1800, 1, 1, tzinfo=NEW_YORK), datetime(1800, 1, 1, 4, 56, 2, tzinfo=UTC)),
    ("timestamptz", "2024-01-01 12:00", datetime(2024, 1, 1, 12, tzinfo=UTC)),
    ("timestamp", pd.Timestamp("2024-01-01 12:00:00.000001"), datetime(2024, 1, 1, 12, 0, 0, 1)),
    ("bytea", bytearray(range(256)), bytes(range(256))),
    ("bigint[]", [np.int64(1), None, 2**62], [1, None, 2**62]),
    ("timestamptz[]", [pd.NaT], [None]),
    ("json[]", [{"a": [1]}, 2.5], [{"a": [1]}, 2.5]),
    ("mood[]", ["so so"], '{"so so"}'),
]
"""Types, values that are written, and equal values that are read."""


def is_gone(row: tuple[Any, ...]) -> bool:
    return "gone" in row


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def write(server: PostgresServer, table: str, columns: Sequence[str], *rows: Any, options: str = "") -> None:
    sink = PostgresSink[Any](f"{server.conninfo} options='{options}'", table, columns)
    info = SinkInfo(f"job of {table}", "out", 1)
    sink.begin(info, 0)
    sink.write(SinkBatch(info, 0, 0, iter([RecordBatch(rows)])))


def test_what_is_written_is_read_equal(postgres_server: PostgresServer, new_table: NewTable, zone: str) -> None:
    new_table("id int").execute(TYPES)
    cases = [*CASES, *CONVERTED]
    table = new_table(", ".join(["id int PRIMARY KEY", *(f"c{n} {kind}" for n, (kind, _, _) in enumerate(cases))]))
    empty = [None] * len(cases)
    rows = [(n, *empty[:n], value, *empty[n + 1 :]) for n, (_, value, _) in enumerate(cases)]
    names = ["id", *(f"c{n}" for n in range(len(cases)))]
    write(postgres_server, table.name, names, *rows, options=OTHER_FORMS if zone != "UTC" else "")
    found = {change.key[0]: change.row or {} for change in Run(table.source(decode=dict)).batch()}
    for n, (kind, value, read) in enumerate(cases):
        assert repr(found[n][f"c{n}"]) == repr(read), (kind, value)


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        ("timestamptz", datetime(2024, 1, 1), r"timestamp with time zone, .* a datetime with a time zone is expected"),
        ("int", 1.5, r"integer, which does not keep the float 1\.5: a whole number from -2147483648 to 2147483647 is"),
        ("varchar(3)", "abc ", r"character varying\(3\), which .* 'abc ': a str of at most 3 characters"),
        ("numeric(5, 2)", Decimal("1.234"), r"at most 2 digits after the point"),
        ("text", "a\0b", "a text without NUL is expected"),
        ("text", "\ud800", "surrogates not allowed"),
        ("payday", datetime(2024, 1, 1), r"type date, which does not keep the datetime .*: a date, such as"),
        ("bytea[]", ["abc"], r"bytea\[\], .*: a value of type bytes is expected"),
        ("int NOT NULL", None, 'null value in column "Odd %s\\."" of relation'),
        ("json", {"a": float("nan")}, "Out of range float values are not JSON compliant"),
        ("interval(0)", timedelta(seconds=1), "fields, a str is expected"),
        ("int", np.datetime64("2024-01-01"), "the datetime64 .*: a number is expected"),
        ("inet", 5, "a str with a literal of the type is expected"),
        ("uuid", "x", 'invalid input syntax for type uuid: "x"'),
    ],
)
def test_refused_value_is_named(
    postgres_server: PostgresServer, new_table: NewTable, kind: str, value: Any, found: str
) -> None:
    new_table("id int").execute(TYPES)
    table = new_table(f"id int PRIMARY KEY, {quoted(ODD)} {kind}")
    with pytest.raises(JobError, match=found) as failed:
        write(postgres_server, table.name, ["id", ODD], (1, None if "NULL" not in kind else 1), (2, value))
    assert f"A row does not match the table {table.name} (id, {ODD})" in str(failed.value)
    assert table.execute("SELECT count(*) FROM {}") == [(0,)]


def test_names_with_every_kind_of_character(postgres_server: PostgresServer, new_table: NewTable) -> None:
    table = new_table(f'id int PRIMARY KEY, {quoted(ODD)} text, "select" text, "Größe" text')
    name = 'Odd 100% "$1" Table'
    table.execute(f"ALTER TABLE {{}} RENAME TO {quoted(name)}")
    columns = ["id", ODD, "select", "Größe"]
    rows = [(1, "a", "b", "c"), (2, "d", "e", "f"), (1, "g", "h", "i"), (2, "gone", "", "")]
    sink = PostgresSink[Any](
        postgres_server.conninfo,
        name,
        columns,
        key=["id"],
        deletes=lambda row: row[1] == "gone",
        batch_table="Batches %s",
    )
    info = SinkInfo("job", "out", 1)
    sink.begin(info, 0)
    for row in rows:
        sink.check_record(row)
    sink.write(SinkBatch(info, 0, 0, iter([RecordBatch(rows)])))
    assert table.execute(f"SELECT * FROM {quoted(name)}") == [(1, "g", "h", "i")]
    with pytest.raises(ValueError, match=rf"Column select of {re.escape(name)} has the type text, .* the int 5"):
        sink.check_record((1, "a", 5, "c"))


def test_deletion_needs_the_key_only(postgres_server: PostgresServer, new_table: NewTable) -> None:
    table = new_table("id int PRIMARY KEY, at timestamptz")
    sink = PostgresSink[Any](postgres_server.conninfo, table.name, ["at", "id"], key=["id"], deletes=is_gone)
    sink.check_record(("gone", np.int64(1)))
    with pytest.raises(ValueError, match=r"Column id of .* 1\.5"):
        sink.check_record(("gone", 1.5))


def test_transactions_do_not_depend_on_the_settings_of_the_user(postgres_server: PostgresServer) -> None:
    options = "-cdefault_transaction_isolation=serializable -csynchronous_commit=off -carray_nulls=off"
    server = Server(PostgresConnection("A test", f"{postgres_server.conninfo} options='{options}'", ms(1000)))

    def settings(connection: Connection) -> list[Any]:
        names = ("default_transaction_isolation", "synchronous_commit", "array_nulls")
        return [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]

    assert server.run("Cannot show", settings) == [("read committed",), ("on",), ("on",)]
    server.close()
