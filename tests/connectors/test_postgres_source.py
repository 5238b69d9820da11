"""``PostgresSource`` on a real server: the snapshot, then every change, the same at every reading."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

import psycopg
import pytest

from dsv2 import CollectSink, DeadLetter, ErrorPolicy
from dsv2.connectors.postgres import PostgresSink, RowChange, drop_replication
from dsv2.connectors.postgres.log import Log
from dsv2.connectors.postgres.server import Server
from dsv2.connectors.postgres.settings import PostgresConnection, ReplicationSettings
from dsv2.connectors.postgres.split import parse_lsn
from dsv2.jobs.handle import Trigger
from dsv2.model import RecordBatch, RecordPosition
from dsv2.sinks import SinkBatch, SinkInfo
from dsv2.sources import SplitBatch
from tests.durations import ms
from tests.replicated_tables import Run, Table, state_after, summaries
from tests.support import local_environment

NewTable: TypeAlias = Callable[[str], Table]


def test_snapshot_then_every_kind_of_change_in_order(table: Table) -> None:
    run = Run(table.source())
    snapshot = run.batch()
    assert sorted(summaries(snapshot)) == sorted(("snapshot", n, f"row {n}") for n in range(1, 11))
    table.execute("INSERT INTO {} VALUES (11, 'new')")
    table.execute("UPDATE {} SET name = 'first' WHERE id = 1", "UPDATE {} SET name = 'second' WHERE id = 1")
    table.execute("DELETE FROM {} WHERE id = 2")
    table.execute("UPDATE {} SET id = 30 WHERE id = 3")
    table.execute("INSERT INTO {} VALUES (11, 'again') ON CONFLICT (id) DO UPDATE SET name = 'upserted'")
    assert summaries(run.batch()) == [
        ("insert", 11, "new"),
        ("update", 1, "first"),
        ("update", 1, "second"),
        ("delete", 2, None),
        ("delete", 3, None),
        ("insert", 30, "row 3"),
        ("update", 11, "upserted"),
    ]
    assert run.batch() == []


def test_log_starts_at_the_snapshot_and_is_read_after_it(table: Table) -> None:
    run = Run(table.source(records_per_batch=4))
    first = run.batch()
    assert len(first) == 4
    # Changes during the snapshot are in the log, even if the row has not been read yet.
    table.execute("UPDATE {} SET name = 'changed'", "DELETE FROM {} WHERE id > 5")
    snapshot = first + run.batch() + run.batch()
    assert sorted(summaries(snapshot)) == sorted(("snapshot", n, f"row {n}") for n in range(1, 11))
    start = run.at()["log"]
    assert run.at() == {"snapshot-0": 5, "snapshot-1": 10, "log": start}
    assert state_after(snapshot + run.batch()) == {(n,): "changed" for n in range(1, 6)}


def test_repeated_micro_batch_reads_the_same(table: Table) -> None:
    run = Run(table.source(records_per_batch=6))
    first = run.batch()
    table.execute("UPDATE {} SET name = 'changed'", "DELETE FROM {} WHERE id = 1", "INSERT INTO {} VALUES (0, 'zero')")
    assert run.repeated() == first
    run.snapshot()
    table.execute("UPDATE {} SET name = 'more' WHERE id = 5")
    second = run.batch()
    table.execute("UPDATE {} SET name = 'even more' WHERE id = 5")
    assert run.repeated() == second
    assert summaries(run.batch()) == [("update", 5, "even more")]


def test_overlapping_transactions_come_in_commit_order(table: Table) -> None:
    run = Run(table.source())
    run.snapshot()
    with psycopg.connect(table.conninfo) as slow, psycopg.connect(table.conninfo) as rolled_back:
        slow.execute(f"UPDATE {table.name} SET name = 'slow' WHERE id = 1".encode())
        rolled_back.execute(f"UPDATE {table.name} SET name = 'never' WHERE id = 2".encode())
        table.execute("UPDATE {} SET name = 'quick' WHERE id = 3")
        assert summaries(run.batch()) == [("update", 3, "quick")]
        slow.execute(f"UPDATE {table.name} SET name = 'slow' WHERE id = 4".encode())
        rolled_back.rollback()
    assert summaries(run.batch()) == [("update", 1, "slow"), ("update", 4, "slow")]
    assert run.batch() == []


def test_flag_is_sent_once_by_all_readers(table: Table) -> None:
    run = Run(table.source(records_per_batch=6))
    assert len(run.batch()) == 6
    assert run.watermark_senders() == []
    assert len(run.batch()) == 4
    assert run.watermark_senders() == []
    assert run.batch() == []
    assert run.watermark_senders() == [0, 1]
    table.execute("UPDATE {} SET name = 'x' WHERE id = 1")
    assert len(run.batch()) == 1
    assert run.watermark_senders() == []
    later = Run(table.source(), run.offset, parallelism=3)
    later.batch()
    assert later.watermark_senders() == [0, 1, 2]
    offset = later.offset
    assert later.batch() == []
    assert later.offset == offset


def test_source_without_the_flag_does_not_declare_it(table: Table) -> None:
    assert [declaration.identifier for declaration in table.source().declare_watermarks()] != []
    source = table.source(sends_use_processing_time=False)
    assert list(source.declare_watermarks()) == []
    run = Run(source)
    assert len(run.batch()) == 10
    assert run.batch() == []
    assert run.watermark_senders() == []
    table.execute("DELETE FROM {} WHERE id = 1")
    assert summaries(run.batch()) == [("delete", 1, None)]


def test_snapshot_of_an_empty_table_ends_at_once(new_table: NewTable) -> None:
    table = new_table("id int PRIMARY KEY, name text")
    run = Run(table.source())
    assert run.batch() == []
    assert (list(run.at()), run.watermark_senders()) == (["log"], [0, 1])
    table.execute("INSERT INTO {} VALUES (1, 'one')")
    assert summaries(run.batch()) == [("insert", 1, "one")]
    table.drop_replication_objects()


def test_processed_log_and_snapshot_copy_are_removed(table: Table) -> None:
    def copy() -> Any:
        ((found,),) = table.execute("SELECT to_regclass('dsv2_snapshot_{}')")
        return found

    run = Run(table.source())
    run.snapshot()
    start = run.at()["log"]
    assert (kept_from(table), copy() is None) == (start, False)
    positions = []
    for name in ("first", "second", "third"):
        table.execute(f"UPDATE {{}} SET name = '{name}' WHERE id = 1")
        assert summaries(run.batch()) == [("update", 1, name)]
        positions.append(run.at()["log"])
    # One micro-batch behind: only the next one shows that the previous one is complete.
    assert (kept_from(table), copy()) == (positions[-2], None)
    table.drop_replication_objects()
    assert table.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = '{}'") == []
    assert table.execute("SELECT 1 FROM pg_publication WHERE pubname = 'dsv2_{}'") == []


def test_log_of_other_tables_starts_no_micro_batches(
    table: Table, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = new_table("id int PRIMARY KEY, name text")
    run = Run(table.source())
    run.snapshot()
    run.batch()
    before = run.offset
    other.execute("INSERT INTO {} SELECT n, '' FROM generate_series(1, 1000) n")
    ((end,),) = other.execute("SELECT pg_current_wal_flush_lsn()::text")
    monkeypatch.setattr(Log, "end", lambda _: parse_lsn(end))  # the server adds to the log at any time
    assert run.batch() == []
    assert run.offset == before
    monkeypatch.setattr(Log, "changes", None)
    assert run.batch() == []  # and an unchanged log is not read again


def test_log_kept_by_the_slot_is_not_read_again(table: Table) -> None:
    run = Run(table.source())
    run.snapshot()
    for name in ("first", "second", "third"):
        table.execute(f"UPDATE {{}} SET name = '{name}' WHERE id = 1")
        assert run.plan_next(commits=False)
        assert summaries(run.repeated()) == [("update", 1, name)]


def test_transactions_belong_to_the_range_of_their_commit(table: Table) -> None:
    run = Run(table.source())
    run.snapshot()
    start = run.at()["log"]
    for number in range(3):
        table.execute(f"UPDATE {{}} SET name = '{number}' WHERE id < 3")
    settings = ReplicationSettings(PostgresConnection("A test", table.conninfo, ms(1000)), table.name, table.name)
    server = Server(settings.connection)
    log, oid = Log(server, settings), table.execute("SELECT '{}'::regclass::oid")[0][0]
    end = log.end()
    changes = list(log.changes(oid, start, end))
    assert len(changes) == 6
    for cut in (change.commit_lsn + by for change in changes for by in (-1, 0, 1, 20)):
        first, second = list(log.changes(oid, start, cut)), list(log.changes(oid, cut, end))
        assert [*first, *second] == changes
    server.close()


def test_micro_batch_is_bounded_by_its_log_bytes(table: Table) -> None:
    run = Run(table.source(log_bytes_per_batch=2_000))
    run.snapshot()
    for number in range(40):
        table.execute(f"INSERT INTO {{}} VALUES (1000 + {number}, repeat('x', 200))")
    start = run.at()["log"]
    batches: list[int] = []
    while sum(batches) < 40:
        batches.append(len(run.batch()))
        assert run.at()["log"] - start <= 2_000
        start = run.at()["log"]
    assert max(batches) < 20


def test_key_and_columns_are_the_same_in_snapshot_and_log(new_table: NewTable) -> None:
    """Generated columns are in neither. Values of all types: test_postgres_source_values.py."""
    new_table("id int PRIMARY KEY").execute("CREATE DOMAIN day AS date", "CREATE DOMAIN workday AS day")
    columns = 'id uuid, day workday, flag boolean, "Odd name" text, made int GENERATED ALWAYS AS (1) STORED'
    table = new_table(f"{columns}, PRIMARY KEY (id, day) INCLUDE (flag)")
    insert = "INSERT INTO {} VALUES ('00000000-0000-0000-0000-000000000001', '%s', true, 'odd')"
    first, later = date(2024, 2, 29), date(2025, 3, 1)
    row = {"id": UUID(int=1), "day": first, "flag": True, "Odd name": "odd"}
    table.execute(insert % first)
    run = Run(table.source(decode=dict))
    assert run.snapshot() == [RowChange("snapshot", (UUID(int=1), first), row)]
    table.execute(insert % later, f"DELETE FROM {{}} WHERE day = '{first}'")
    assert run.batch() == [
        RowChange("insert", (UUID(int=1), later), {**row, "day": later}),
        RowChange("delete", (UUID(int=1), first), None),
    ]


def test_changes_have_the_time_of_their_commit(table: Table) -> None:
    run = Run(table.source())
    run.snapshot()
    before = int(datetime.now(UTC).timestamp() * 1000)
    table.execute("UPDATE {} SET name = 'x' WHERE id = 1")
    run.batch()
    (records,) = run.batches()
    assert records.timestamps is not None
    (timestamp,) = records.timestamps
    assert timestamp is not None
    assert before - 1 <= timestamp <= int(datetime.now(UTC).timestamp() * 1000)


@pytest.mark.parametrize("change", ["name = 'c'", "id = 2"])
def test_unchanged_large_values_are_reported(new_table: NewTable, change: str) -> None:
    table = new_table("id int PRIMARY KEY, name text, large text")
    table.execute("ALTER TABLE {} ALTER large SET STORAGE EXTERNAL")
    table.execute("INSERT INTO {} VALUES (1, 'a', repeat('x', 10000))")
    run = Run(table.source(decode=lambda row: (row["name"], len(row["large"]))))
    assert summaries(run.snapshot()) == [("snapshot", 1, ("a", 10_000))]
    table.execute("ALTER TABLE {} REPLICA IDENTITY FULL")
    table.execute("UPDATE {} SET name = 'b'")
    assert summaries(run.batch()) == [("update", 1, ("b", 10_000))]
    table.execute("ALTER TABLE {} REPLICA IDENTITY DEFAULT")
    table.execute(f"UPDATE {{}} SET {change}")
    found = rf"large values .* of column large of {table.name} for key \([12]\)\. .* IDENTITY FULL"
    with pytest.raises(ValueError, match=found):
        run.batch()


def test_column_added_during_the_run(table: Table) -> None:
    run = Run(table.source(decode=dict))
    run.snapshot()
    table.execute("ALTER TABLE {} ADD added int DEFAULT 7")
    table.execute("UPDATE {} SET name = 'x' WHERE id = 1")
    (change,) = run.batch()
    assert change.row == {"id": 1, "name": "x", "added": 7}


def test_names_with_capitals_and_a_schema(new_table: NewTable) -> None:
    table = new_table("id int PRIMARY KEY, name text")
    table.execute('CREATE SCHEMA "Odd"', 'ALTER TABLE {} SET SCHEMA "Odd"', 'ALTER TABLE "Odd".{} RENAME TO "Table"')
    table.execute('INSERT INTO "Odd"."Table" VALUES (1, \'one\')')
    run = Run(table.source(table="Odd.Table"))
    assert summaries(run.snapshot()) == [("snapshot", 1, "one")]
    table.execute('ALTER TABLE "Odd"."Table" RENAME TO "Other"', 'UPDATE "Odd"."Other" SET name = NULL')
    run = Run(table.source(table="Odd.Other"), run.offset)  # the user renamed it and updated the program
    assert summaries(run.batch()) == [("update", 1, None)]


def test_quoted_names_with_dots(new_table: NewTable) -> None:
    table = new_table("id int PRIMARY KEY, name text")
    table.execute('CREATE SCHEMA "a.b"', 'ALTER TABLE {} SET SCHEMA "a.b"', 'ALTER TABLE "a.b".{} RENAME TO "c.""d"')
    run = Run(table.source(table='"a.b"."c.""d"'))
    assert run.snapshot() == []
    sink = PostgresSink[Any](table.conninfo, '"a.b"."c.""d"', ["id", "name"], key=["id"], batch_table='"a.b"."e.f"')
    info = SinkInfo("job", "out", 1)
    sink.begin(info, 0)
    sink.check_record((1, "one"))
    sink.write(SinkBatch(info, 0, 0, iter([RecordBatch([(1, "one")])])))
    assert summaries(run.batch()) == [("insert", 1, "one")]
    assert table.execute('SELECT count(*) FROM "a.b"."e.f"') == [(2,)]


def test_documented_privileges_are_sufficient(table: Table) -> None:
    user = f"user_of_{table.name}"
    table.execute(
        f"CREATE ROLE {user} LOGIN REPLICATION",
        f"GRANT CREATE ON DATABASE postgres TO {user}",
        f"CREATE SCHEMA {user} AUTHORIZATION {user}",
        f"ALTER TABLE {{0}} SET SCHEMA {user}",
        f"ALTER TABLE {user}.{{0}} OWNER TO {user}",
    )
    conninfo = table.conninfo.replace("user=postgres", f"user={user}")
    run = Run(table.source(table=f"{user}.{table.name}", conninfo=conninfo))
    assert len(run.snapshot()) == 10
    for number in (1, 2, 3):
        table.execute(f"DELETE FROM {user}.{{}} WHERE id = {number}")
        assert summaries(run.batch()) == [("delete", number, None)]
    run.driver.close()
    drop_replication(conninfo, f"{user}.{table.name}", table.name)


def test_rows_of_inheriting_tables_are_not_included(table: Table) -> None:
    table.execute("CREATE TABLE {0}_heir () INHERITS ({0})", "INSERT INTO {0}_heir VALUES (20, 'heir')")
    run = Run(table.source())
    assert len(run.snapshot()) == 10
    table.execute("UPDATE {0} SET name = 'all' WHERE id >= 10")
    assert summaries(run.batch()) == [("update", 10, "all")]
    table.execute("DROP TABLE {0}_heir")


def test_log_of_other_tables_is_released(table: Table, new_table: NewTable) -> None:
    other = new_table("id int PRIMARY KEY, name text")
    run = Run(table.source(log_bytes_per_batch=100_000))
    run.snapshot()
    before = run.at()["log"]
    other.execute("INSERT INTO {} SELECT n, '' FROM generate_series(1, 5000) n")
    assert run.batch() == []
    assert run.at()["log"] == before + 100_000
    run.batch()
    assert kept_from(table) == before + 100_000


def kept_from(table: Table) -> int:
    query = "SELECT (confirmed_flush_lsn - '0/0')::bigint FROM pg_replication_slots WHERE slot_name = '{}'"
    ((lsn,),) = table.execute(query)
    return int(lsn)


@pytest.mark.parametrize("seed", range(4))
def test_final_rows_equal_the_table_after_random_steps(table: Table, seed: int) -> None:
    random = Random(seed)
    rows: dict[Any, Any] = {}
    run = Run(table.source(records_per_batch=3, log_bytes_per_batch=random.choice([500, 5_000])))
    for step in range(40):
        found = run.batch()
        if random.random() < 0.7:
            table.execute(*(a_change(random, f"{step}.{number}") for number in range(random.randint(1, 4))))
        if found:
            assert run.repeated() == found
        rows = state_after(found, rows)
        if random.random() < 0.3:
            limits = {"records_per_batch": random.randint(1, 5), "log_bytes_per_batch": random.choice([500, 5_000])}
            run.driver.close()
            run = Run(table.source(**limits), run.offset, parallelism=random.randint(1, 3))
    while run.plan_next():
        rows = state_after(run.repeated(), rows)
    assert rows == {(key,): name for key, name in table.execute("SELECT id, name FROM {}")}


def a_change(random: Random, name: str) -> str:
    """A statement that changes a row, or none if there is no such row. ``{}`` is the table."""
    key, other = random.randint(1, 12), random.randint(13, 30)
    return random.choice(
        [
            f"INSERT INTO {{}} VALUES ({key}, '{name}') ON CONFLICT (id) DO UPDATE SET name = '{name}, again'",
            f"UPDATE {{}} SET name = '{name}' WHERE id = {key}",
            f"UPDATE {{0}} SET id = {other} WHERE id = {key} AND NOT EXISTS (SELECT FROM {{0}} WHERE id = {other})",
            f"DELETE FROM {{}} WHERE id IN ({key}, {other})",
        ]
    )


def test_rows_are_skipped_by_number_and_changes_by_their_commit(table: Table) -> None:
    env, names, letters = local_environment(1), CollectSink[Any](), CollectSink[DeadLetter[RowChange[dict[str, Any]]]]()
    run = Run(table.source())
    run.snapshot()
    table.execute("UPDATE {} SET name = 'x' WHERE id IN (1, 2)")
    run.batch()
    [batch] = run.batches()
    assert isinstance(batch, SplitBatch)
    assert batch.offsets is not None
    first, second = (str(offset).split("#") for offset in batch.offsets())
    assert (first[0], first[1], second[1]) == (second[0], "1", "2")
    table.drop_replication_objects()
    source = table.source(decode=lambda row: 1 // (row["id"] - 5))
    stream = env.from_source(source).with_uid("in").with_error_policy(ErrorPolicy().dead_letter(ZeroDivisionError))
    stream.to_sink(names)
    stream.dead_letters(RowChange).to_sink(letters)
    skips = {"in": [("snapshot-0", 3)]}
    env.execute(trigger=Trigger.available_now(), skip_records=skips)
    [letter] = letters.results
    assert letter.record is not None
    assert letter.record.row is not None
    assert (letter.record.key, letter.record.row["id"]) == ((5,), 5)
    assert letter.position == RecordPosition("in", "snapshot-0", 5)
    assert sorted(change.key for change in names.results) == [(number,) for number in (1, 2, 4, 6, 7, 8, 9, 10)]
