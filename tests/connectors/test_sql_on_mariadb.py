"""The connectors of SQL pass the suites for connectors on MariaDB, and the cases that SQLite and DuckDB do not have."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from hypothesis import given

from components.mariadb import MariaDBServer
from dsv2 import CollectSink, ErrorPolicy, ExecutionEnvironment
from dsv2.connectors.sql import SqlSink, SqlSource
from dsv2.errors import JobError, SchemaError
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import SinkInfo, SinkRunInfo
from tests.profiles import examples
from tests.unit.connectors.sql import test_sql_connectors as connectors
from tests.unit.connectors.sql import test_sql_suites as suites
from tests.unit.connectors.sql.databases import TestDatabase

NUMBERS = itertools.count()
INFO = SinkInfo("job", "sink", 1, SinkRunInfo("run", 0))


def new_database(server: MariaDBServer) -> TestDatabase:
    """A database of its own, on the shared server."""
    name = f"d{next(NUMBERS)}"
    TestDatabase(server.url).run(f"CREATE DATABASE {name}")
    return TestDatabase(sa.make_url(server.url).set(database=name).render_as_string(hide_password=False))


@pytest.fixture
def database(mariadb_server: MariaDBServer) -> TestDatabase:
    return new_database(mariadb_server)


class TestSinkToMariaDB(suites.TestSinkToSQLite):
    driver = "mysql+pymysql"

    @pytest.fixture(autouse=True)
    def prepare(self, mariadb_server: MariaDBServer) -> None:
        self.create_table(new_database(mariadb_server), "LONGTEXT")


class TestSourceFromMariaDB(suites.TestSourceFromSQLite):
    driver = "mysql+pymysql"

    @pytest.fixture(autouse=True)
    def prepare(self, mariadb_server: MariaDBServer) -> None:
        self.create_table(new_database(mariadb_server), "LONGTEXT")


def write(target: SqlSink[Any], *records: Any, batch_id: int = 0, info: SinkInfo = INFO) -> None:
    target.begin(info, batch_id)
    target.write(info, [RecordBatch(list(records))], batch_id)


@given(batches=connectors.micro_batches)
@examples(5)
def test_rows_by_key_agree_with_a_dict(
    mariadb_server: MariaDBServer, batches: Sequence[tuple[list[list[connectors.Change]], bool]]
) -> None:
    database = new_database(mariadb_server)
    database.run("CREATE TABLE t (name VARCHAR(20), number INT, value INT, PRIMARY KEY (name, number))")
    connectors.check_rows_by_key(database, batches)


def test_names_with_unusual_letters(database: TestDatabase) -> None:
    schema = database.engine.url.database
    database.run("CREATE TABLE `Own Table` (`a b` INT PRIMARY KEY, `select` INT)")
    columns = ["a b", "select"]
    target = SqlSink[Any](database.url, f"{schema}.Own Table", columns, key=["a b"], batch_table=f"{schema}.b%a`t :ch")
    write(target, (1, 2), (1, 3))
    assert database.rows("SELECT * FROM `Own Table`") == [(1, 3)]
    assert ("b%a`t :ch",) in database.rows("SHOW TABLES")
    source = SqlSource(database.url, f"{schema}.Own Table", columns, lambda row: tuple(row.values()), by="a b")
    assert connectors.read(source) == [(1, 3)]


AT = datetime(2024, 3, 10, 2, 30, 0, 123456)  # an hour that New York does not have
VALUES = """CREATE TABLE v (id INT, flag BOOLEAN, number BIGINT, real8 DOUBLE, exact DECIMAL(38, 18), text LONGTEXT,
    data LONGBLOB, day DATE, clock TIME(6), seen DATETIME(6), at TIMESTAMP(6) NULL, seconds DATETIME, json JSON)"""
COLUMNS = ["id", "flag", "number", "real8", "exact", "text", "data", "day", "clock", "seen", "at", "seconds", "json"]


def test_values_stay_as_they_are(database: TestDatabase) -> None:
    database.run(VALUES)
    exact = Decimal("-12345678901234567890.000000000000000001")
    days = date(1, 1, 1), timedelta(0), AT, AT, datetime(1, 1, 1)
    others = date.max, timedelta(hours=-1), datetime(9999, 12, 31, 23, 59, 59, 999999), AT, datetime(2024, 1, 1)
    rows = [
        (1, True, -(1 << 63), 0.1 + 0.2, exact, "ä\0\n😀", b"\xff\0'", *days, "{}"),
        (2, False, 0, -1e308, Decimal(5), "", b"", *others, "[1]"),
        (3, *[None] * 12),
    ]
    write(SqlSink[Any](database.url, "v", COLUMNS), *rows)
    source = SqlSource(database.url, "v", COLUMNS, lambda row: tuple(row.values()), by="id")
    assert connectors.read(source) == rows


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("exact", Decimal("1e-19"), "the column has 18 decimal places, and would round it"),
        ("exact", 1e-19, "the column has 18 decimal places"),
        ("exact", Decimal("NaN"), "the database has neither NaN nor infinity"),
        ("real8", math.inf, "the database has neither NaN nor infinity"),
        ("number", 1.5, "the column has 0 decimal places"),
        ("number", 1 << 63, "Out of range value"),
        ("seconds", AT, r"the column has 0 decimal places of seconds, such as DATETIME\. Use DATETIME\(6\)"),
        ("day", AT, "the column has days only"),
        ("at", datetime(1960, 1, 1), "Incorrect datetime value"),
        ("text", [1], r"the driver would store str\(\) of a list"),
        ("text", UUID(int=1), r"the driver would store str\(\) of a UUID"),
        ("json", "{", "CONSTRAINT `v.json` failed"),
    ],
)
def test_values_that_would_be_changed_are_refused(
    database: TestDatabase, column: str, value: object, message: str
) -> None:
    database.run(VALUES)
    target = SqlSink[Any](database.url, "v", [column])
    with pytest.raises(SchemaError, match=message):
        write(target, (value,))
    with pytest.raises(SchemaError, match=message):
        target.check_record((value,))
    assert database.rows("SELECT * FROM v") == []


def test_too_long_texts_are_refused_by_lenient_servers(database: TestDatabase) -> None:
    database.run("CREATE TABLE v (text VARCHAR(3))")
    database.run("SET GLOBAL sql_mode = ''")
    try:
        with pytest.raises(SchemaError, match="Data too long"):
            write(SqlSink[Any](database.url, "v", ["text"]), ("abcd",))
    finally:
        database.run("SET GLOBAL sql_mode = DEFAULT")


def test_rows_larger_than_a_packet_are_dead_letters(database: TestDatabase) -> None:
    database.run("CREATE TABLE v (data LONGBLOB)")
    large, letters = "'" * 600_000, CollectSink[Any]()  # is escaped as 1,200,000 bytes
    env = ExecutionEnvironment.get_instance(runtime="local")
    rows = [("a" * 1_000_000,), (large,), (b"b" * 500_000,), (b"c" * 600_000,)]
    written = env.from_collection(rows).to_sink(SqlSink[Any](database.url, "v", ["data"]))
    written.with_error_policy(ErrorPolicy().dead_letter())
    written.dead_letters(object).to_sink(letters)
    env.execute("large rows")
    assert sorted(database.rows("SELECT LEFT(data, 1), LENGTH(data) FROM v")) == [(b"a", 1_000_000), (b"b", 500_000)]
    assert len(letters.results) == 2
    for letter in letters.results:
        assert "The server accepts 1048576: see max_allowed_packet" in letter.error_message


def test_sinks_whose_names_differ_by_case_are_different(database: TestDatabase) -> None:
    database.run("CREATE TABLE v (text VARCHAR(3))")
    for number, uid in enumerate(("sink", "Sink", "sink ", "sínk")):
        info = SinkInfo("job", uid, 1, SinkRunInfo("run", 0))
        for _ in range(2):
            write(SqlSink[Any](database.url, "v", ["text"]), (f"{number}",), info=info)
    assert sorted(database.rows("SELECT text FROM v")) == [("0",), ("1",), ("2",), ("3",)]


def test_keys_that_the_database_takes_for_the_same(database: TestDatabase) -> None:
    database.run("CREATE TABLE t (name VARCHAR(20) PRIMARY KEY, value INT)")
    write(SqlSink[Any](database.url, "t", ["name", "value"], key=["name"]), ("a", 1), ("A", 2), ("a", 3))
    assert database.rows("SELECT value FROM t") == [(3,)]


def test_killed_connections_are_replaced(database: TestDatabase) -> None:
    database.run("CREATE TABLE t (value INT)")
    target = SqlSink[Any](database.url, "t", ["value"])
    for number in range(3):
        write(target, (number,), batch_id=number)
        query = f"SELECT id FROM information_schema.processlist WHERE db = '{database.engine.url.database}'"
        for (connection,) in database.rows(f"{query} AND id <> connection_id() AND command <> 'Killed'"):
            database.run(f"KILL {connection}")
    assert sorted(database.rows("SELECT value FROM t")) == [(0,), (1,), (2,)]


def test_connection_that_is_killed_within_a_micro_batch(
    database: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run("CREATE TABLE t (value INT)")
    target = SqlSink[Any](database.url, "t", ["value"])
    target.begin(INFO, 0)

    def kill(opened: sa.Connection, *changes: Any) -> None:
        database.run(f"KILL {opened.execute(sa.text('SELECT connection_id()')).scalar_one()}")
        apply(opened, *changes)

    apply = target._apply
    with monkeypatch.context() as patch:
        patch.setattr(target, "_apply", kill)
        with pytest.raises(JobError, match="Cannot write table t at mysql"):
            target.write(INFO, [RecordBatch([(1,)])], 0)
    write(target, (1,))
    assert database.rows("SELECT * FROM t") == [(1,)]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("(name INT PRIMARY KEY, value INT) ENGINE MyISAM", "has the engine MyISAM, which has no transactions"),
        ("(name INT, value INT)", "has no unique index on name, so rows cannot be replaced by key"),
        ("(name INT, value INT, UNIQUE (name, value))", "has no unique index on name"),
        ("(name INT PRIMARY KEY, value INT UNIQUE)", "has another unique index, on value"),
    ],
)
def test_tables_that_would_be_written_wrongly(database: TestDatabase, table: str, message: str) -> None:
    database.run(f"CREATE TABLE t {table}")
    with pytest.raises(JobError, match=message):
        write(SqlSink[Any](database.url, "t", ["name", "value"], key=["name"]), (1, 2))


def test_other_unique_columns_that_are_not_written(database: TestDatabase) -> None:
    database.run("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, name INT UNIQUE, value INT)")
    write(SqlSink[Any](database.url, "t", ["name", "value"], key=["name"]), (7, 1), (8, 2), (7, 3))
    assert sorted(database.rows("SELECT name, value FROM t")) == [(7, 3), (8, 2)]


def test_times_of_a_day(database: TestDatabase) -> None:
    database.run("CREATE TABLE v (clock TIME)")
    write(SqlSink[Any](database.url, "v", ["clock"]), (time(1, 2, 3),))
    assert database.rows("SELECT clock FROM v") == [(timedelta(hours=1, minutes=2, seconds=3),)]
    with pytest.raises(SchemaError, match="has 0 decimal places of seconds"):
        write(SqlSink[Any](database.url, "v", ["clock"]), (time(1, 2, 3, 4),), batch_id=1)
