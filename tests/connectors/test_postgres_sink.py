"""``PostgresSink`` on a real server: contents of the table after repeats, crashes and changes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest

from components.postgres import PostgresServer
from dsv2 import CollectSink, DeadLetter, ErrorPolicy, JobError
from dsv2.connectors.postgres import PostgresSink
from dsv2.errors import ConfigurationError
from dsv2.model import RecordBatch
from dsv2.sinks import SinkBatch, SinkInfo
from tests.durations import ms
from tests.support import local_environment

NUMBERS = itertools.count()


class Item(NamedTuple):
    id: int
    text: str | None


class Table:
    """A table of a test with the columns ``id`` and ``text``."""

    def __init__(self, server: PostgresServer, *, unique: bool) -> None:
        self.conninfo = server.conninfo
        self.name = f"items_{next(NUMBERS)}"
        self.job = f"job-{self.name}"
        with psycopg.connect(self.conninfo) as connection:
            key = "PRIMARY KEY" if unique else ""
            connection.execute(f"CREATE TABLE {self.name} (id int {key}, text text)".encode())

    def sink(self, **options: Any) -> PostgresSink[Item]:
        options = {"columns": ["id", "text"], "retry_timeout": ms(120_000), **options}
        return PostgresSink(self.conninfo, self.name, **options)

    def begin(self, sink: PostgresSink[Item], batch_id: int, parallelism: int = 2) -> None:
        sink.begin(SinkInfo(self.job, "out", parallelism), batch_id)

    def write(
        self, sink: PostgresSink[Item], batch_id: int, *items: Item, subtask: int = 0, parallelism: int = 2
    ) -> None:
        batches = (RecordBatch(items[at : at + 3]) for at in range(0, len(items), 3))
        sink.write(SinkBatch(SinkInfo(self.job, "out", parallelism), subtask, batch_id, batches))

    def rows(self) -> list[tuple[int, Any]]:
        with psycopg.connect(self.conninfo) as connection:
            return connection.execute(f"SELECT id, text FROM {self.name} ORDER BY id, text".encode()).fetchall()


@pytest.fixture
def table(postgres_server: PostgresServer) -> Table:
    """A table without constraints."""
    return Table(postgres_server, unique=False)


@pytest.fixture
def keyed(postgres_server: PostgresServer) -> Table:
    """A table with a primary key."""
    return Table(postgres_server, unique=True)


def items(*numbers: int) -> list[Item]:
    return [Item(number, f"n{number}") for number in numbers]


def test_rows_are_replaced_and_deleted_by_key(keyed: Table) -> None:
    sink = keyed.sink(key=["id"], deletes=lambda item: item.text == "gone")
    keyed.begin(sink, 0)
    keyed.write(sink, 0, Item(1, "a"), Item(2, "b"), Item(1, "c"), Item(3, "gone"), Item(4, None))
    assert keyed.rows() == [(1, "c"), (2, "b"), (4, None)]
    keyed.write(sink, 1, Item(2, "gone"), Item(1, "gone"), Item(1, "d"), Item(4, "gone"))
    assert keyed.rows() == [(1, "d")]


def test_key_of_all_columns_and_computed_rows(keyed: Table) -> None:
    sink = PostgresSink[int](
        keyed.conninfo, f"public.{keyed.name}", ["id"], row=lambda number: [number * 2], key=["id"]
    )
    info = SinkInfo(keyed.job, "out", 1)
    sink.begin(info, 0)
    sink.write(SinkBatch(info, 0, 0, iter([RecordBatch([1, 2, 1])])))
    assert keyed.rows() == [(2, None), (4, None)]


def test_failed_batch_is_not_visible(keyed: Table) -> None:
    sink = keyed.sink()
    keyed.begin(sink, 0)
    with pytest.raises(
        JobError, match=rf"A row does not match the table {keyed.name} \(id, text\): duplicate key value"
    ):
        keyed.write(sink, 0, *items(1, 2, 1))
    with pytest.raises(JobError, match=r"A row does not match the table .*invalid input syntax for type integer"):
        keyed.write(sink, 0, Item(5, "five"), Item("six", "six"))  # type: ignore[arg-type]
    assert keyed.rows() == []
    keyed.write(sink, 0, *items(1, 2))
    assert keyed.rows() == items(1, 2)


@pytest.mark.parametrize("batch_id", [0, 1])
def test_two_attempts_at_the_same_time(table: Table, batch_id: int) -> None:
    sink = table.sink()
    table.begin(sink, 0)
    if batch_id:
        table.write(sink, 0, *items(0))
    second = threading.Thread(target=table.write, args=(sink, batch_id, *items(1, 2)))
    write_while(table, sink, batch_id, second, *items(1, 2))
    assert table.rows() == items(*range(1 - batch_id, 3))


def test_start_with_another_parallelism_waits_for_a_writer(table: Table) -> None:
    sink = table.sink()
    table.begin(sink, 0)
    refused = []

    def begin() -> None:
        with pytest.raises(JobError) as error:
            table.begin(sink, 0, parallelism=3)
        refused.append(error)

    write_while(table, sink, 0, threading.Thread(target=begin), *items(1, 2))
    assert len(refused) == 1


def write_while(table: Table, sink: PostgresSink[Item], batch_id: int, other: threading.Thread, *rows: Item) -> None:
    """Write ``rows`` in one transaction, during which ``other`` starts and waits."""

    def batches() -> Iterator[RecordBatch[Item]]:
        yield RecordBatch(rows[:1])
        other.start()
        while not waits_for_lock(table):
            assert other.is_alive()
        yield RecordBatch(rows[1:])

    sink.write(SinkBatch(SinkInfo(table.job, "out", 2), 0, batch_id, batches()))
    other.join()


def waits_for_lock(table: Table) -> bool:
    query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%dsv2_batches%'"
    with psycopg.connect(table.conninfo) as connection:
        return connection.execute(query).fetchone() is not None


def test_old_attempt_of_another_parallelism_cannot_write(table: Table) -> None:
    sink = table.sink()
    table.begin(sink, 0, parallelism=3)
    table.begin(sink, 0, parallelism=2)
    with pytest.raises(JobError, match="the job was restarted in the meantime, with 2 subtasks of the sink"):
        table.write(sink, 0, *items(1), subtask=2, parallelism=3)
    assert table.rows() == []


def test_missing_table_and_missing_column(table: Table) -> None:
    sink = PostgresSink[Item](table.conninfo, "nowhere", ["id", "text"])
    table.begin(sink, 0)
    with pytest.raises(JobError, match=r'A row does not match the table nowhere .*relation "nowhere" does not exist'):
        table.write(sink, 0, *items(1))
    with pytest.raises(JobError, match=r'column "name" of relation .* does not exist'):
        table.write(table.sink(columns=["id", "name"]), 0, *items(1))


def test_unreachable_server() -> None:
    sink = PostgresSink[Item]("host=127.0.0.1 port=1 password=hush", "t", ["id"], retry_timeout=ms(500))
    with pytest.raises(JobError, match=r"Cannot create table dsv2_batches .*Connection refused") as failed:
        sink.begin(SinkInfo("job", "out", 1), 0)
    assert "password=***" in str(failed.value)
    assert "hush" not in str(failed.value) + repr(sink)


def test_wrong_credentials_fail_at_once(table: Table) -> None:
    sink = PostgresSink[Item](table.conninfo.replace("user=postgres", "user=nobody9"), "t", ["id"])
    with pytest.raises(JobError, match='role "nobody9" does not exist'):
        table.begin(sink, 0)


def test_late_server_is_waited_for(own_postgres_server: PostgresServer) -> None:
    table = Table(own_postgres_server, unique=False)
    sink = table.sink()
    table.begin(sink, 0)
    own_postgres_server.kill()
    late = threading.Timer(0.5, own_postgres_server.start)
    late.start()
    try:
        table.write(sink, 0, *items(1))
    finally:
        late.join()
    assert table.rows() == items(1)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"columns": "id"}, "must be a list of distinct names, got 'id'"),
        ({"columns": []}, "must be a list of distinct names"),
        ({"columns": ["id", "id"]}, "must be a list of distinct names"),
        ({"columns": ["id"], "key": ["name"]}, "The key of PostgresSink must be among its columns, but name is not"),
        ({"columns": ["id"], "deletes": bool}, "deletes rows by key. Pass a key"),
        ({"columns": ["id"], "retry_timeout": ms(0)}, "retry_timeout must be at least 1 ms, not 0 ms"),
    ],
)
def test_invalid_sink_options(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        PostgresSink[Item]("host=h", "t", **options)


# --- Records that do not fit ------------------------------------------------------------------------------------------


class Priced(NamedTuple):
    id: Any
    price: Any
    name: Any = "n"
    gone: bool = False


def is_gone(record: Priced) -> bool:
    return record.gone


def values_of(record: Priced) -> tuple[Any, ...]:
    return record[:3] if record.name != "short" else record[:2]


FITTING = [Priced(1, 5), Priced(2, "7"), Priced(3, 0, None), Priced(1, None, gone=True)]
REFUSED = {
    Priced("x", 1): "InvalidTextRepresentation",
    Priced(1 << 40, 1): "RowError",
    Priced(1, -1): "CheckViolation",
    Priced(None, 1): "NotNullViolation",
    Priced(1, 1, "long name"): "RowError",
    Priced(1, 1, "a\0b"): "RowError",
    Priced(1, 1, "short"): "RowError",
    Priced(1, 1, object): "RowError",
    Priced("x", None, gone=True): "InvalidTextRepresentation",
}


@pytest.fixture
def priced(postgres_server: PostgresServer) -> str:
    name = f"priced_{next(NUMBERS)}"
    with psycopg.connect(postgres_server.conninfo) as connection:
        columns = "id int PRIMARY KEY, price int CHECK (price >= 0), name varchar(5), noted int NOT NULL DEFAULT 3"
        connection.execute(f"CREATE TABLE {name} ({columns})".encode())
        connection.execute(f"INSERT INTO {name} VALUES (9, 9, '')".encode())
    return name


def test_rows_that_do_not_fit_the_table_are_set_aside(postgres_server: PostgresServer, priced: str) -> None:
    conninfo, names = postgres_server.conninfo, ["id", "price", "name"]
    sink = PostgresSink[Priced](conninfo, priced, names, row=values_of, key=["id"], deletes=is_gone)
    env, letters = local_environment(1), CollectSink[DeadLetter[Priced]]()
    records = env.from_collection([*FITTING[:3], *REFUSED, FITTING[3]])
    written = records.to_sink(sink).with_error_policy(ErrorPolicy().dead_letter(Exception))
    written.dead_letters(Priced).to_sink(letters)
    env.execute()
    assert {letter.record: letter.error_type for letter in letters.results} == REFUSED
    with psycopg.connect(conninfo) as connection:
        rows = connection.execute(f"SELECT * FROM {priced} ORDER BY id".encode()).fetchall()
        assert connection.execute("SELECT count(*) FROM pg_class WHERE relname = 'dsv2_check'").fetchone() == (0,)
    assert rows == [(2, 7, "n", 3), (3, 0, None, 3), (9, 9, "", 3)]


def test_missing_table_fails_the_job(postgres_server: PostgresServer) -> None:
    sink = PostgresSink[Priced](postgres_server.conninfo, "nowhere", ["id"])
    with pytest.raises(JobError, match=r"Cannot check rows of nowhere .*UndefinedTable"):
        sink.check_record(Priced(1, 1))
