"""Failures of ``PostgresSource``: errors, and failures after which it continues without loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from components.postgres import PostgresServer
from dsv2 import JobError
from dsv2.connectors.postgres import PostgresSource, RowChange, drop_replication
from dsv2.errors import ConfigurationError
from dsv2.testing.connectors.source_run import Reader
from tests.durations import ms
from tests.replicated_tables import Run, Table, summaries
from tests.restarted_servers import restarted_after_a_retry

NewTable: TypeAlias = Callable[[str], Table]


def test_undecodable_row(table: Table) -> None:
    with pytest.raises(KeyError, match="nme"):
        Run(table.source(decode=lambda row: row["nme"]), parallelism=1).batch()


def test_truncated_table(table: Table) -> None:
    run = Run(table.source())
    run.snapshot()
    table.execute("TRUNCATE {}")
    with pytest.raises(JobError, match=rf"Table {table.name} was truncated\. The log does not contain the keys"):
        run.batch()


def test_replication_of_an_uncommitted_start_is_reused(table: Table) -> None:
    Run(table.source()).batch()  # its offset was never logged
    table.execute("UPDATE {} SET name = 'changed' WHERE id = 1", "DELETE FROM {} WHERE id = 2")
    run = Run(table.source())
    assert sorted(summaries(run.batch())) == sorted(("snapshot", n, f"row {n}") for n in range(1, 11))
    assert summaries(run.snapshot()) == [("update", 1, "changed"), ("delete", 2, None)]


def test_start_that_failed_between_copy_and_slot(table: Table) -> None:
    Run(table.source()).batch()
    table.execute("SELECT pg_drop_replication_slot('{}')")
    table.execute("UPDATE {} SET name = 'changed' WHERE id = 1", "DELETE FROM {} WHERE id > 2")
    run = Run(table.source())
    assert sorted(summaries(run.snapshot())) == [("snapshot", 1, "changed"), ("snapshot", 2, "row 2")]
    assert kept_slots(table) == [table.name]


def kept_slots(table: Table) -> list[str]:
    """Permanent slots of the table."""
    query = f"SELECT slot_name FROM pg_replication_slots WHERE NOT temporary AND slot_name ~ '^{table.name}($|_)'"
    return [name for (name,) in table.execute(query)]


@pytest.mark.parametrize("reads_on", [False, True])
def test_slot_of_another_job_is_refused_unless_replaced(table: Table, reads_on: bool) -> None:
    other = Run(table.source(records_per_batch=6))
    other.batch()
    other.batch()
    if reads_on:
        other.snapshot()
    with pytest.raises(JobError, match=rf"The replication slot {table.name} already exists\. .*if_slot_exists='repl"):
        Run(table.source()).batch()
    table.execute("DELETE FROM {} WHERE id > 3")
    assert len(Run(table.source(if_slot_exists="replace")).batch()) == 3


def test_slot_of_another_table_is_not_reused(table: Table, new_table: NewTable) -> None:
    other = new_table("id int PRIMARY KEY, name text")
    Run(other.source(slot_name=table.name)).batch()
    with pytest.raises(JobError, match="already exists"):
        Run(table.source()).batch()


def test_slot_ahead_of_the_job(table: Table) -> None:
    run = Run(table.source())
    run.snapshot()
    old, offset = Run(table.source(), run.offset), run.offset
    table.execute("UPDATE {} SET name = 'x' WHERE id = 1")
    run.batch()
    run.repeated()
    assert summaries(old.batch()) == [("update", 1, "x")]
    table.execute("UPDATE {} SET name = 'y' WHERE id = 1")
    run.batch()
    run.batch()
    with pytest.raises(JobError, match=rf"The replication slot {table.name} no longer retains changes of {table.name}"):
        old.repeated()
    with pytest.raises(JobError, match=r"this job was restored from an older checkpoint"):
        Run(table.source(), offset).batch()


def test_dropped_slot(table: Table) -> None:
    run = Run(table.source())
    run.snapshot()
    run.driver.close()
    table.execute("SELECT pg_drop_replication_slot('{}')")
    with pytest.raises(JobError, match=rf"The replication slot {table.name} was dropped, so changes of"):
        Run(table.source(), run.offset).batch()


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["DROP TABLE {}"], r"is no longer the table that the job began with"),
        (["DROP TABLE {}", "CREATE TABLE {} (id int PRIMARY KEY)"], "is no longer the table that the job began with"),
        (["ALTER TABLE {0} RENAME TO {0}_old", "CREATE TABLE {0} (id int PRIMARY KEY)"], "{} is now a different table"),
        (
            ["ALTER PUBLICATION dsv2_{0} DROP TABLE {0}"],
            "The publication dsv2_{} no longer contains all of table public.{}",
        ),
        (["ALTER PUBLICATION dsv2_{0} SET (publish = 'insert, update')"], "no longer contains all of table public.{}"),
    ],
)
def test_table_that_is_no_longer_replicated(table: Table, statements: list[str], found: str) -> None:
    run = Run(table.source())
    run.snapshot()
    table.execute(*statements)
    with pytest.raises(JobError, match=found.format(table.name, table.name)):
        run.batch()


@pytest.mark.parametrize(
    "part", ["FOR TABLE {} (id)", "FOR TABLE {} WHERE (id > 3)", "FOR TABLE {} WITH (publish = 'insert, delete')"]
)
def test_incomplete_publication(table: Table, part: str) -> None:
    table.execute("CREATE PUBLICATION {0}_part " + part.replace("{}", "{0}"))
    with pytest.raises(JobError, match=rf"The publication {table.name}_part must contain table public\."):
        Run(table.source(publication=f"{table.name}_part")).batch()


def test_publication_of_the_user(table: Table) -> None:
    with pytest.raises(JobError, match=rf"The publication mine must contain table public\.{table.name}"):
        Run(table.source(publication="mine")).batch()
    table.execute("CREATE PUBLICATION mine FOR ALL TABLES")
    run = Run(table.source(publication="mine"))
    run.snapshot()
    table.execute("CREATE TABLE {}_other (id int PRIMARY KEY)", "INSERT INTO {}_other VALUES (1)")
    table.execute("UPDATE {} SET name = 'x' WHERE id = 1")
    assert summaries(run.batch()) == [("update", 1, "x")]
    drop_replication(table.conninfo, table.name, table.name, "mine")
    assert table.execute("SELECT 1 FROM pg_publication WHERE pubname = 'mine'") == [(1,)]
    table.execute("DROP PUBLICATION mine")


def test_server_that_crashes_at_every_point(
    own_postgres_server: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_postgres_server
    table = Table(server.conninfo, "id int PRIMARY KEY, name text")
    table.execute("INSERT INTO {} SELECT n, 'row ' || n FROM generate_series(1, 30000) n")
    run = Run(table.source(records_per_batch=20_000), parallelism=1)
    with restarted_after_a_retry(server, caplog):
        first = run.batch()
    assert read_in_a_crash(run, server, caplog) == first
    with restarted_after_a_retry(server, caplog):
        rest = run.batch()
    assert [change.key[0] for change in first + rest] == list(range(1, 30_001))
    run.snapshot()
    table.execute("UPDATE {} SET name = 'changed' WHERE id <= 10000")
    with restarted_after_a_retry(server, caplog):
        changes = run.batch()
    assert read_in_a_crash(run, server, caplog) == changes
    assert summaries(changes) == [("update", number, "changed") for number in range(1, 10_001)]
    assert f"Cannot replicate table {table.name}" in caplog.text
    assert "Retrying." in caplog.text


def read_in_a_crash(run: Run, server: PostgresServer, caplog: pytest.LogCaptureFixture) -> list[RowChange[Any]]:
    """The last micro-batch, read by a task while the server crashes."""
    (order,) = run.orders()
    reader = run.source.create_reader(Reader())
    seen: list[RowChange[Any]] = []
    for portion in order.portions:
        batches = reader.read(portion.start, portion.stop)
        seen += next(batches).records
        with restarted_after_a_retry(server, caplog):
            seen += [change for batch in batches for change in batch.records]
    reader.close()
    return seen


def test_unreachable_server() -> None:
    source = PostgresSource[Any](
        "host=127.0.0.1 port=1 password=hush", "t", slot_name="s", decode=dict, retry_timeout=ms(300)
    )
    with pytest.raises(JobError, match=r"Cannot replicate table t .*Connection refused") as failed:
        Run(source).batch()
    assert "password=***" in str(failed.value)
    assert "hush" not in str(failed.value)


def test_wrong_credentials_fail_at_once_and_show_no_password(own_postgres_server: PostgresServer) -> None:
    table = Table(own_postgres_server.conninfo, "id int PRIMARY KEY, name text")
    table.execute("CREATE ROLE guarded LOGIN REPLICATION PASSWORD 'right'")
    ((rules,),) = table.execute("SHOW hba_file")
    rule = "host all guarded 127.0.0.1/32 scram-sha-256"
    table.execute(f"COPY (SELECT '{rule}') TO '{rules}'", "SELECT pg_reload_conf()")
    for password, found in (("wrong", "password authentication failed"), ("right", "permission denied")):
        conninfo = f"{table.conninfo} password={password}".replace("user=postgres", "user=guarded")
        source = PostgresSource[Any](conninfo, table.name, slot_name="s", decode=dict, retry_timeout=ms(600_000))
        with pytest.raises(JobError, match=found) as failed:
            Run(source).batch()
        assert f"password={password}" not in str(failed.value)


def test_server_without_logical_decoding(postgres_server_without_decoding: PostgresServer) -> None:
    table = Table(postgres_server_without_decoding.conninfo, "id int PRIMARY KEY, name text")
    with pytest.raises(JobError, match=r"wal_level is replica\. Set it in postgresql\.conf, and restart the"):
        Run(table.source()).batch()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"slot_name": "My-Slot"}, "slot_name must consist of at most 40 lower-case letters, digits and underscores"),
        ({"if_slot_exists": "drop"}, "if_slot_exists must be one of 'fail', 'replace', or a member of IfSlotExists"),
        ({"records_per_batch": 0}, "records_per_batch must be a whole number of at least 1"),
        ({"log_bytes_per_batch": 0}, "log_bytes_per_batch must be a whole number of at least 1"),
        ({"conninfo": ""}, "PostgresSource requires conninfo"),
    ],
)
def test_invalid_source_options(options: dict[str, Any], found: str) -> None:
    with pytest.raises(ConfigurationError, match=found):
        PostgresSource(**{"conninfo": "host=h", "table": "t", "slot_name": "s", "decode": dict, **options})


def test_password_is_hidden() -> None:
    for conninfo in ("host=h password=hush", "host=h password = 'hush'", "postgresql://me:hush@h/db?sslpassword=hush"):
        shown = repr(PostgresSource[Any](conninfo, "t", slot_name="s", decode=dict))
        assert "hush" not in shown
        assert "***" in shown
