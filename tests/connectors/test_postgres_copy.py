"""``PostgresSink`` with columnar records: the same rows as from single records, written by ``COPY``."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from components.postgres import PostgresServer
from dsv2 import JobError
from dsv2.arrow import records_of
from dsv2.arrow.schema import rows_to_table
from dsv2.connectors.files import FilesSource
from dsv2.connectors.formats import json_records
from dsv2.connectors.postgres import PostgresSink
from dsv2.connectors.postgres.table_rows import TableRows
from dsv2.model import RecordBatch
from dsv2.sinks import SinkBatch, SinkInfo
from tests.durations import ms
from tests.support import local_environment

NUMBERS = itertools.count()
FIELDS = ["id", "small", "text", "value", "flag", "day", "at", "price"]
COLUMNS = """
    id int8, small int2, text text CHECK (text <> 'refused'), value float8, flag bool, day date, at timestamp,
    price numeric, serial serial
"""


class Item(NamedTuple):
    id: int
    small: int | None = None
    text: str | None = None
    value: float | None = None
    flag: bool | None = None
    day: date | None = None
    at: datetime | None = None
    price: Decimal | None = None


@dataclass
class Named:
    note: str | None
    id: int


AWKWARD = [
    Item(1),
    Item(-(1 << 63), -(1 << 15), "", -0.0, False, date.min, datetime.min, Decimal("-1.500000000000000000")),
    Item((1 << 63) - 1, (1 << 15) - 1, "NULL", float("nan"), True, date.max, datetime.max, Decimal("0E-18")),
    Item(
        2,
        0,
        '"quoted", and "" more\r\n\n\tend ',
        float("-inf"),
        None,
        date(1, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, 1),
    ),
    Item(3, 0, "\\N", 5e-324),
    Item(4, 0, " é€\U0001f600\ufeff'", 0.1 + 0.2),
    Item(5, 0, "\\", 1.7976931348623157e308),
]


def write(
    server: PostgresServer,
    rows: Sequence[Any],
    *,
    columnar: bool,
    table: str = COLUMNS,
    after: str = "",
    **options: Any,
) -> list[Any]:
    """Write rows to a new table, and return what it has."""
    name = f"copied_{next(NUMBERS)}"
    with psycopg.connect(server.conninfo) as connection:
        connection.execute(f"CREATE TABLE {name} ({table}); {after.format(name)}".encode())
    kind = type(rows[0])
    records = records_of(rows_to_table(rows, kind), kind) if columnar else rows
    sink = PostgresSink[Any](server.conninfo, name, **{"columns": FIELDS, "retry_timeout": ms(120_000), **options})
    info = SinkInfo(name, "out", 1)
    sink.begin(info, 0)
    try:
        for _ in range(2):  # the second time is a repetition
            sink.write(SinkBatch(info, 0, 0, iter([RecordBatch(records[:2]), RecordBatch(records[2:])])))
    finally:
        with psycopg.connect(server.conninfo) as connection:
            found = connection.execute(f"SELECT * FROM {name}".encode()).fetchall()
    return found


@pytest.fixture
def only_copies(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let single rows fail, once called."""

    def fail(self: TableRows[Any], record: Any) -> Sequence[Any]:
        raise AssertionError(record)

    return lambda: monkeypatch.setattr(TableRows, "row_of", fail)


def test_columns_are_copied_as_rows_are_inserted(
    postgres_server: PostgresServer, only_copies: Callable[[], None]
) -> None:
    rows = write(postgres_server, AWKWARD, columnar=False)
    only_copies()
    assert repr(write(postgres_server, AWKWARD, columnar=True)) == repr(rows)
    assert [row[0] for row in rows] == [item.id for item in AWKWARD]


def test_fields_of_a_selector_are_columns(postgres_server: PostgresServer, only_copies: Callable[[], None]) -> None:
    only_copies()
    rows = [Named("a", 1), Named(None, 2)]
    options: dict[str, Any] = {"columns": ["id", "text"], "row": attrgetter("id", "note")}
    assert [row[:3] for row in write(postgres_server, rows, columnar=True, **options)] == [
        (1, None, "a"),
        (2, None, None),
    ]


@pytest.mark.parametrize(
    ("item", "columns", "after", "options"),
    [
        (Item(1, 1 << 15), COLUMNS, "", {}),
        (Item(1, 0, "a\0b"), COLUMNS, "", {}),
        (Item(1, 0, "refused"), COLUMNS, "", {}),
        (Item(1, 0, "a\n\\.\nb"), COLUMNS, "", {}),
        (Item(1, 0, "12345"), COLUMNS.replace("text text", "text varchar(4)"), "", {}),
        (Item(1, 0, "1234 "), COLUMNS.replace("text text", "text varchar(4)"), "", {}),
        (Item(1, 0, "12éé"), COLUMNS.replace("text text", "text varchar(4)"), "", {}),
        (Item(1, at=datetime(2024, 1, 1, 0, 0, 0, 1)), COLUMNS.replace("at timestamp", "at timestamp(3)"), "", {}),
        (
            Item(1, price=Decimal("1.250000000000000000")),
            COLUMNS.replace("price numeric", "price numeric(5, 1)"),
            "",
            {},
        ),
        (Item(1, value=0.1), COLUMNS.replace("value float8", "value real"), "", {}),
        (Item(1, text="{}"), COLUMNS.replace("text text CHECK (text <> 'refused')", "text jsonb"), "", {}),
        (Item(1), COLUMNS.replace("flag bool", "flag bool NOT NULL"), "", {}),
        (Item(1), COLUMNS, "CREATE RULE none AS ON INSERT TO {} DO INSTEAD NOTHING", {}),
        (Item(1), COLUMNS, "CREATE UNIQUE INDEX ON {} (id)", {"key": ["id"]}),
        (Item(1), COLUMNS, "", {"row": lambda item: item}),
    ],
)
def test_others_are_rows(
    postgres_server: PostgresServer, item: Item, columns: str, after: str, options: dict[str, Any]
) -> None:
    """A case that columns or ``COPY`` do not cover has the result and the error of rows."""

    def result(columnar: bool) -> object:
        try:
            return write(
                postgres_server, [*AWKWARD[:1], item], columnar=columnar, table=columns, after=after, **options
            )
        except JobError as error:
            return str(error).partition("\n")[0].replace(f"copied_{next(NUMBERS) - 1}", "the table")

    assert result(columnar=True) == result(columnar=False)


def test_nothing_of_a_failed_copy_remains(postgres_server: PostgresServer) -> None:
    with pytest.raises(JobError, match=r"A row does not match the table copied_\d+ .*violates check constraint"):
        write(postgres_server, [Item(1), Item(2), Item(3, text="refused")], columnar=True)


def test_job_decodes_to_columns_and_copies_them(
    postgres_server: PostgresServer, only_copies: Callable[[], None], tmp_path: Path
) -> None:
    only_copies()
    (tmp_path / "a").write_text('{"note": "a", "id": 1}\n{"note": null, "id": 2}\n')
    with psycopg.connect(postgres_server.conninfo) as connection:
        connection.execute("CREATE TABLE copied (note text, id int)")
    env = local_environment(2)
    notes = env.from_source(FilesSource(tmp_path, json_records(Note))).with_uid("in")
    notes.to_sink(PostgresSink(postgres_server.conninfo, "copied", ["note", "id"])).with_uid("out")
    env.execute()
    with psycopg.connect(postgres_server.conninfo) as connection:
        assert connection.execute("SELECT * FROM copied ORDER BY id").fetchall() == [("a", 1), (None, 2)]


class Note(NamedTuple):
    note: str | None
    id: int
