"""A PostgreSQL table that is replicated on Spark to another table, which always equals the first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
import pytest
from pyspark.sql import SparkSession

from components.postgres import PostgresServer
from dsv2.connectors.postgres import PostgresSink, PostgresSource, RowChange, drop_replication
from dsv2.jobs.handle import Trigger
from tests.spark.programs import environment


class Item(NamedTuple):
    id: int
    name: str


def item_of(row: dict[str, Any]) -> Item:
    return Item(**row)


def key_of(change: RowChange[Item]) -> int:
    return int(change.key[0])


def columns_of(change: RowChange[Item]) -> tuple[Any, ...]:
    return (change.key[0], None) if change.row is None else change.row


def is_deletion(change: RowChange[Item]) -> bool:
    return change.row is None


@pytest.fixture
def conninfo(postgres_server: PostgresServer) -> Iterator[str]:
    """A database with a table ``items`` and an empty one, ``copied``."""
    with psycopg.connect(postgres_server.conninfo) as connection:
        connection.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
        connection.execute("CREATE TABLE copied (LIKE items INCLUDING ALL)")
        connection.execute("INSERT INTO items SELECT n, 'row ' || n FROM generate_series(1, 1000) n")
    yield postgres_server.conninfo
    drop_replication(postgres_server.conninfo, "items", "items_copied")


def copy(spark: SparkSession, conninfo: str, checkpoint: str, parallelism: int) -> None:
    """Copy ``items`` to ``copied``, with its changes up to now. ``parallelism`` is that of the source."""
    env = environment(spark, 2)
    source = PostgresSource(conninfo, "items", slot_name="items_copied", decode=item_of, records_per_batch=400)
    sink = PostgresSink[RowChange[Item]](
        conninfo, "copied", ["id", "name"], row=columns_of, key=["id"], deletes=is_deletion
    )
    items = env.from_source(source).with_parallelism(parallelism).with_uid("in")
    items.key_by(key_of).to_sink(sink).with_uid("out")
    env.execute("copy", checkpoint_location=checkpoint, trigger=Trigger.available_now())


def change_rows(conninfo: str, over: threading.Event) -> None:
    """Change some rows, and then others, until ``over`` is set."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        number = 0
        while not over.is_set():
            number += 1
            first = number * 7 % 1000
            connection.execute("UPDATE items SET name = name || '.' WHERE id BETWEEN %s AND %s", [first, first + 20])
            connection.execute("DELETE FROM items WHERE id = %s", [first + 3])
            connection.execute("UPDATE items SET id = id + %s WHERE id = %s", [2000 * number, first + 5])
            connection.execute("INSERT INTO items VALUES (%s, 'new') ON CONFLICT DO NOTHING", [first])
            over.wait(0.02)


def test_changing_table_is_copied_over_restarts(spark: SparkSession, conninfo: str, checkpoint: str) -> None:
    over = threading.Event()
    others = threading.Thread(target=change_rows, args=(conninfo, over))
    others.start()
    try:
        for parallelism in (2, 3):
            copy(spark, conninfo, checkpoint, parallelism)
    finally:
        over.set()
        others.join()
    copy(spark, conninfo, checkpoint, 1)
    with psycopg.connect(conninfo) as connection:
        items, copied = (
            connection.execute(f"SELECT id, name FROM {table} ORDER BY id".encode()).fetchall()
            for table in ("items", "copied")
        )
    assert copied == items
    assert len({name for _, name in items} - {"new"}) > 20
