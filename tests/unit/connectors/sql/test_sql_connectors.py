"""The connectors of SQL: rows by key, values that a database would change, mistakes in their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import CollectSink, ExecutionEnvironment
from dsv2.connectors.sql import SqlSink, SqlSource
from dsv2.errors import ConfigurationError, JobError, SchemaError
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks import SinkInfo, SinkRunInfo
from tests.profiles import examples
from tests.unit.connectors.sql.databases import DIALECTS, TestDatabase

pytest.importorskip("duckdb_engine")


class Change(NamedTuple):
    name: str
    number: int
    value: int | None


INFO = SinkInfo("job", "sink", 1, SinkRunInfo("run", 0))
changes = st.builds(Change, st.sampled_from("abc"), st.integers(-1, 1), st.sampled_from([None, 0, 1, 2]))
micro_batches = st.lists(st.tuples(st.lists(st.lists(changes, max_size=4), max_size=2), st.booleans()), max_size=5)


@pytest.fixture(params=DIALECTS)
def database(request: pytest.FixtureRequest) -> TestDatabase:
    found = TestDatabase.of_file(request.param)
    found.run("CREATE TABLE t (name VARCHAR, number INT, value INT, PRIMARY KEY (name, number))")
    return found


def sink(database: TestDatabase, **options: Any) -> SqlSink[Any]:
    return SqlSink(database.url, "t", ["name", "number", "value"], **options)


def write(target: SqlSink[Any], *records: Any, batch_id: int = 0) -> None:
    target.begin(INFO, batch_id)
    target.write(INFO, [RecordBatch(list(records))], batch_id)


def is_deletion(change: Change) -> bool:
    return change.value == 0


@pytest.mark.parametrize("dialect", DIALECTS)
@given(batches=micro_batches)
@examples(20)
def test_rows_by_key_agree_with_a_dict(dialect: str, batches: Sequence[tuple[list[list[Change]], bool]]) -> None:
    database = TestDatabase.of_file(dialect)
    database.run("CREATE TABLE t (name VARCHAR, number INT, value INT, PRIMARY KEY (name, number))")
    check_rows_by_key(database, batches)


def check_rows_by_key(database: TestDatabase, batches: Sequence[tuple[list[list[Change]], bool]]) -> None:
    """Check that the table ``t`` has the same rows as a dict."""
    expected: dict[tuple[str, int], Change] = {}
    for batch_id, (parts, is_repeated) in enumerate(batches):
        for _ in range(1 + is_repeated):
            target = sink(database, key=["name", "number"], deletes=is_deletion)
            target.begin(INFO, batch_id)
            target.write(INFO, [RecordBatch(part) for part in parts], batch_id)
        for change in (change for part in parts for change in part):
            expected.pop(change[:2], None)
            if not is_deletion(change):
                expected[change[:2]] = change
    assert sorted(database.rows("SELECT * FROM t"), key=repr) == sorted(map(tuple, expected.values()), key=repr)


def test_columns_that_are_not_written_stay(database: TestDatabase) -> None:
    write(sink(database, key=["name", "number"]), Change("a", 1, 5), Change("b", 1, 6))
    write(SqlSink[Any](database.url, "t", ["number", "name"], key=["name", "number"]), (1, "a"), (2, "a"), batch_id=1)
    assert sorted(database.rows("SELECT * FROM t")) == [("a", 1, 5), ("a", 2, None), ("b", 1, 6)]


def test_micro_batch_is_written_whole_or_not_at_all(database: TestDatabase) -> None:
    target = sink(database)
    with pytest.raises(SchemaError, match="Cannot write table t at"):
        write(target, Change("a", 1, 1), Change("b", 1, 1), Change("a", 1, 2))
    assert database.rows("SELECT * FROM t") == []
    write(target, Change("a", 1, 1))
    assert database.rows("SELECT * FROM t") == [("a", 1, 1)]


def test_attempts_at_once_are_noticed(database: TestDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = sink(database), sink(database)
    slow.begin(INFO, 0)
    write(fast, Change("a", 1, 1))
    monkeypatch.setattr(type(slow._ledger), "is_written", lambda *arguments: False)  # as if it had looked before
    monkeypatch.setattr(type(slow._ledger), "_entry", lambda *arguments: (-1, "run"))
    with pytest.raises(JobError, match="Another attempt has written a micro-batch of this sink at the same time"):
        slow.write(INFO, [RecordBatch([Change("b", 1, 1)])], 0)
    assert database.rows("SELECT * FROM t") == [("a", 1, 1)]


def test_names_with_a_schema_and_unusual_letters(database: TestDatabase) -> None:
    database.run('CREATE TABLE "Own Table" ("a b" INT PRIMARY KEY, "select" INT)')
    target = SqlSink[Any](database.url, "main.Own Table", ["a b", "select"], key=["a b"], batch_table='main.b"atches')
    write(target, (1, 2), (1, 3))
    assert database.rows('SELECT * FROM "Own Table"') == [(1, 3)]
    source = SqlSource(database.url, "main.Own Table", ["select"], lambda row: row["select"], by="a b")
    assert read(source) == [3]


AT = datetime(2024, 1, 1, 12, 0, 0, 123456)


def test_values_stay_as_they_are(database: TestDatabase) -> None:
    columns = ["id", "flag", "number", "real", "text", "data", "day", "seen"]
    database.run(
        "CREATE TABLE v (id INT, flag BOOLEAN, number BIGINT, real DOUBLE, text VARCHAR, data BLOB, day DATE, "
        "seen TIMESTAMP)"
    )
    rows = [
        (1, True, -(1 << 63), 0.1, "ä\0\n", b"\xff\0", date(1, 1, 1), AT),
        (2, False, (1 << 63) - 1, float("inf"), "", b"", date(9999, 12, 31), datetime(1, 1, 1)),
        (3, None, None, None, None, None, None, None),
    ]
    write(SqlSink[Any](database.url, "v", columns), *rows)
    assert read(SqlSource(database.url, "v", columns, lambda row: tuple(row.values()), by="id")) == rows


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Decimal("1.5"), "SQLite has no decimals, and would store a float"),
        (float("nan"), "SQLite would store NaN as NULL"),
        (datetime(2024, 1, 1, tzinfo=UTC), "the database has no time zones"),
    ],
)
def test_values_that_sqlite_would_change_are_refused(value: object, message: str) -> None:
    database = TestDatabase.of_file("sqlite")
    database.run("CREATE TABLE v (value)")
    with pytest.raises(SchemaError, match=f"Column 'value' has .*: {message}"):
        write(SqlSink[Any](database.url, "v", ["value"]), (value,))


def test_decimals_and_zones_in_duckdb() -> None:
    database = TestDatabase.of_file("duckdb")
    database.run("CREATE TABLE v (id INT, exact DECIMAL(38, 18), seen TIMESTAMPTZ)")
    row = (1, Decimal("-12345678901234567890.000000000000000001"), datetime(2024, 1, 1, tzinfo=UTC))
    write(SqlSink[Any](database.url, "v", ["id", "exact", "seen"]), row)
    assert read(SqlSource(database.url, "v", ["id", "exact", "seen"], lambda r: tuple(r.values()), by="id")) == [row]


def read(source: SqlSource[Any]) -> list[Any]:
    env = ExecutionEnvironment.get_instance(runtime="local")
    found = CollectSink[Any]()
    env.from_source(source).to_sink(found)
    env.execute("read")
    return found.results


@pytest.mark.parametrize("rows_per_batch", [1, 3, 100_000])
def test_bounded_source_ends_with_the_rows_at_its_start(database: TestDatabase, rows_per_batch: int) -> None:
    source = SqlSource(
        database.url, "t", ["value"], lambda row: row["value"], by="number", rows_per_batch=rows_per_batch
    )
    assert read(source) == []
    database.run("INSERT INTO t VALUES (:a, :n, :n)", *({"a": "a", "n": number} for number in (-5, 0, 7, 8, 1_000)))
    assert read(source) == [-5, 0, 7, 8, 1_000]


def test_order_that_is_no_number_is_refused(database: TestDatabase) -> None:
    write(sink(database), Change("a", 1, 1))
    with pytest.raises(JobError, match=r"is read by 'name', which has 'a'\. It must be a whole number"):
        read(SqlSource(database.url, "t", ["value"], lambda row: row["value"], by="name"))


def test_missing_tables_and_columns_are_named() -> None:
    database = TestDatabase.of_file("sqlite")
    database.run("CREATE TABLE t (name VARCHAR)")
    with pytest.raises(JobError, match="There is no table nothing at sqlite:"):
        SqlSink[Any](database.url, "nothing", ["name"]).begin(INFO, 0)
    with pytest.raises(SchemaError, match=r"Table t at .* has no column 'value'\. It has name"):
        SqlSink[Any](database.url, "t", ["name", "value"]).begin(INFO, 0)
    with pytest.raises(JobError, match=r"There is no table nothing at sqlite:"):
        read(SqlSource(database.url, "nothing", ["name"], dict, by="name"))


def test_row_with_another_number_of_values(database: TestDatabase) -> None:
    with pytest.raises(JobError, match="has 2 values, but there are 3 columns"):
        write(sink(database), ("a", 1))


def test_key_that_is_none(database: TestDatabase) -> None:
    with pytest.raises(JobError, match="has None in the key number"):
        write(sink(database, key=["number"]), ("a", None, 1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"url": "no url"}, r"the URL is not valid\. It has the form 'dialect\+driver"),
        ({"url": "nothing://host/db"}, "SQLAlchemy has no such database"),
        ({"url": "mssql+pyodbc://host/db"}, "requires the driver of the database: pip install pyodbc"),
        ({"columns": "name"}, "columns of SqlSink must be a list of distinct names"),
        ({"columns": ["name", "name"]}, "columns of SqlSink must be a list of distinct names"),
        ({"key": ["value"]}, "key of SqlSink must be among its columns, but value is not"),
        ({"deletes": is_deletion}, r"SqlSink deletes rows by key\. Pass a key"),
    ],
)
def test_mistakes_are_found_when_the_sink_is_created(options: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        SqlSink(**{"url": "sqlite://", "table": "t", "columns": ["name"], **options})


def test_mistakes_of_a_source() -> None:
    with pytest.raises(ConfigurationError, match="columns of SqlSource must be a list of distinct names"):
        SqlSource("sqlite://", "t", [], dict, by="id")
    with pytest.raises(ConfigurationError, match="rows_per_batch must be a whole number of at least 1"):
        SqlSource("sqlite://", "t", ["id"], dict, by="id", rows_per_batch=0)
    with pytest.raises(ConfigurationError, match="discovery_interval"):
        SqlSource("sqlite://", "t", ["id"], dict, by="id", discovery_interval=timedelta(0))
