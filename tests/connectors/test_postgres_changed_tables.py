"""``PostgresSource`` on tables that are altered while it reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from dsv2 import JobError
from dsv2.connectors.postgres import RowChange
from tests.connectors.test_postgres_source_failures import kept_slots
from tests.replicated_tables import Run, Table

NewTable: TypeAlias = Callable[[str], Table]

NEW_KEY = "ALTER TABLE {0} DROP CONSTRAINT {0}_pkey, ADD PRIMARY KEY (k)"
NEW_ID = ["ALTER TABLE {} DROP id", "ALTER TABLE {} ADD id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY"]
FULL = "ALTER TABLE {} REPLICA IDENTITY FULL"


@pytest.fixture
def table(new_table: NewTable) -> Table:
    """A table with one row."""
    table = new_table("id int PRIMARY KEY, k int UNIQUE NOT NULL, v text")
    table.execute("INSERT INTO {} VALUES (1, 10, 'a')")
    return table


def keys(changes: list[RowChange[Any]]) -> list[tuple[str, Any]]:
    return [(change.kind, change.key) for change in changes]


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        ([NEW_KEY], r"was \(id\) when the job began, and was then replaced: .* now identified by \(k\)"),
        ([FULL, NEW_KEY], r"now identified by \(k\)"),
        (["ALTER TABLE {0} DROP CONSTRAINT {0}_pkey"], "has no primary key"),
        (NEW_ID, r"was \(id\) when the job began, .* now identified by \(id\)"),
        ([FULL, *NEW_ID], r"now identified by \(id\)"),
        (["ALTER TABLE {} ALTER id TYPE text"], "type of column id of .*, was changed after the job began"),
        (
            ["ALTER TABLE {} RENAME id TO old", "ALTER TABLE {} RENAME k TO id", NEW_KEY.replace("(k)", "(id)")],
            r"was \(id\) when the job began, .* now identified by \(id\)",
        ),
    ],
)
def test_another_key_is_refused(table: Table, statements: list[str], found: str) -> None:
    run = Run(table.source(decode=dict))
    run.snapshot()
    columns = "(k, v) VALUES (2, 'b')" if NEW_ID[0] in statements else "VALUES (2, 2, 'b')"
    table.execute(*statements, f"INSERT INTO {{}} {columns}")
    with pytest.raises(JobError, match=found):
        run.batch()


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_changes_have_the_key_and_columns_of_their_time(table: Table, identity: str) -> None:
    table.execute(f"ALTER TABLE {{}} REPLICA IDENTITY {identity}")
    run = Run(table.source(decode=dict))
    run.snapshot()
    table.execute("UPDATE {} SET v = 'b'")
    table.execute("ALTER TABLE {} RENAME id TO number", "ALTER TABLE {} RENAME v TO id", "UPDATE {} SET id = 'c'")
    table.execute("ALTER TABLE {} DROP id", "ALTER TABLE {} ALTER number TYPE bigint", "ALTER TABLE {} ADD n text")
    table.execute("UPDATE {} SET k = 11", "ALTER TABLE {} ALTER k TYPE text", "UPDATE {} SET number = 2")
    changes = run.batch()
    assert changes == [
        RowChange("update", (1,), {"id": 1, "k": 10, "v": "b"}),
        RowChange("update", (1,), {"number": 1, "k": 10, "id": "c"}),
        RowChange("update", (1,), {"number": 1, "k": 11, "n": None}),
        RowChange("delete", (1,), None),
        RowChange("insert", (2,), {"number": 2, "k": "11", "n": None}),
    ]
    table.execute("ALTER TABLE {} RENAME number TO id", "DELETE FROM {}")
    assert run.repeated() == changes
    later = Run(table.source(decode=dict), run.offset)
    assert later.batch() == [RowChange("delete", (2,), None)]


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_key_columns_that_exchange_their_names(new_table: NewTable, identity: str) -> None:
    table = new_table("a int, b int, c int, PRIMARY KEY (b, a)")
    table.execute(f"ALTER TABLE {{}} REPLICA IDENTITY {identity}", "INSERT INTO {} VALUES (1, 2, 0)")
    run = Run(table.source(decode=dict))
    assert keys(run.snapshot()) == [("snapshot", (2, 1))]
    renames = [f"ALTER TABLE {{}} RENAME {old} TO {new}" for old, new in (("a", "t"), ("b", "a"), ("t", "b"))]
    table.execute("UPDATE {} SET c = 1", *renames, "UPDATE {} SET c = 2")
    assert keys(run.batch()) == [("update", (2, 1)), ("update", (2, 1))]


def test_changes_before_another_key_are_read(table: Table) -> None:
    run = Run(table.source(decode=dict, log_bytes_per_batch=100_000))
    run.snapshot()
    table.execute("UPDATE {} SET v = 'b'")
    assert run.plan_next()
    table.execute(NEW_KEY)
    assert keys(run.repeated()) == [("update", (1,))]


def test_key_keeps_the_order_of_its_columns(new_table: NewTable) -> None:
    table = new_table("a int, b text, c int, PRIMARY KEY (c, a) INCLUDE (b)")
    table.execute("INSERT INTO {} VALUES (1, 'b', 3)")
    run = Run(table.source(decode=dict))
    assert keys(run.snapshot()) == [("snapshot", (3, 1))]
    table.execute("UPDATE {} SET b = 'x'", "ALTER TABLE {} RENAME c TO d", "UPDATE {} SET d = 4", "DELETE FROM {}")
    assert keys(run.batch()) == [("update", (3, 1)), ("delete", (3, 1)), ("insert", (4, 1)), ("delete", (4, 1))]


def test_domain_that_was_dropped_after_the_change(new_table: NewTable) -> None:
    domain = new_table("id int").name
    new_table("id int").execute(f"CREATE DOMAIN natural_{domain} AS int", f"CREATE DOMAIN days_{domain} AS date[]")
    table = new_table(f"id natural_{domain} PRIMARY KEY, days days_{domain}")
    run = Run(table.source(decode=dict))
    run.snapshot()
    table.execute("INSERT INTO {} VALUES (7, '{{}}')")
    assert run.plan_next()
    table.execute("ALTER TABLE {} ALTER id TYPE int, DROP days", f"DROP DOMAIN natural_{domain}, days_{domain}")
    assert run.repeated() == [RowChange("insert", (7,), {"id": 7, "days": []})]


def test_table_that_moves_to_another_schema_during_the_snapshot(table: Table) -> None:
    table.execute("INSERT INTO {} VALUES (2, 20, 'b')", "CREATE SCHEMA of_{}")
    run = Run(table.source(decode=dict, records_per_batch=1))
    assert keys(run.batch()) == [("snapshot", (1,))]
    table.execute("ALTER TABLE {0} SET SCHEMA of_{0}")
    later = Run(table.source(decode=dict, table=f"of_{table.name}.{table.name}"), run.offset)
    assert keys(later.batch()) == [("snapshot", (2,))]
    table.execute("DROP TABLE dsv2_snapshot_{}")
    with pytest.raises(JobError, match=rf"dsv2_snapshot_{table.name}, from which the snapshot .* was dropped"):
        later.repeated()


@pytest.mark.parametrize(
    ("columns", "statement", "found"),
    [
        ("id int PRIMARY KEY DEFERRABLE", "", "is DEFERRABLE, .* Replace it by a PRIMARY KEY \\(id\\)"),
        ("id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED", "", "is DEFERRABLE"),
        ("id int PRIMARY KEY DEFERRABLE", FULL, "is DEFERRABLE"),
        ("a int, id int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY", "", "contains the generated column id"),
        ("id int UNIQUE NOT NULL", "ALTER TABLE {0} REPLICA IDENTITY USING INDEX {0}_id_key", "has no primary key"),
        ("id int PRIMARY KEY", "ALTER TABLE {} REPLICA IDENTITY NOTHING", r"not the primary key.* public\..* DEFAULT"),
        ("id int PRIMARY KEY", "ALTER TABLE {} SET UNLOGGED", "is not an ordinary table"),
        ("id int PRIMARY KEY, dsv2_row int", "", 'DuplicateColumn: column "dsv2_row"'),
    ],
)
def test_refused_tables_are_not_published(new_table: NewTable, columns: str, statement: str, found: str) -> None:
    table = new_table(columns)
    first = columns.split()[0]
    table.execute(f"INSERT INTO {{}} ({first}) VALUES (1)", *([statement] if statement else []))
    with pytest.raises(JobError, match=found):
        Run(table.source()).batch()
    assert kept_slots(table) == []
    assert table.execute("SELECT FROM pg_publication WHERE pubname = 'dsv2_{}'") == []
    table.execute("UPDATE {} SET " + first + " = 3", "DELETE FROM {}")


def test_missing_table_is_refused(table: Table) -> None:
    table.execute("DROP TABLE {}")
    with pytest.raises(JobError, match=r"Table followed_.* does not exist"):
        Run(table.source()).batch()
    assert kept_slots(table) == []


def test_partition_is_read_as_a_table(new_table: NewTable) -> None:
    parent = new_table("id int PRIMARY KEY, name text) PARTITION BY RANGE (id")
    parent.execute(
        "CREATE TABLE {0}_low PARTITION OF {0} FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE {0}_high PARTITION OF {0} FOR VALUES FROM (10) TO (20)",
        "INSERT INTO {} VALUES (1, 'one'), (11, 'eleven')",
    )
    with pytest.raises(JobError, match="partitioned"):
        Run(parent.source()).batch()
    run = Run(parent.source(table=f"{parent.name}_low"))
    assert keys(run.snapshot()) == [("snapshot", (1,))]
    parent.execute(
        "UPDATE {} SET name = 'x'", "UPDATE {} SET id = 2 WHERE id = 11", "UPDATE {} SET id = 12 WHERE id = 1"
    )
    assert keys(run.batch()) == [("update", (1,)), ("insert", (2,)), ("delete", (1,))]
