"""A changing table between two tables of a real PostgreSQL server."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

import psycopg

from components.postgres import PostgresServer
from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Count, Key, Sum
from dsv2.connectors.postgres import PostgresSink, RowChange
from dsv2.local import LocalRuntime
from dsv2.model import Change
from dsv2.tables import Table
from dsv2.testing import ManualClock


class Order(NamedTuple):
    """A row of the source."""

    number: int
    customer: str
    cents: int


class Total(NamedTuple):
    """A row of the sink."""

    customer: str
    orders: int
    cents: int


def change(kind: Any, number: int, customer: str = "", cents: int = 0) -> RowChange[Order]:
    return RowChange(kind, (number,), None if kind == "delete" else Order(number, customer, cents))


def test_sink_has_the_rows_of_the_table(postgres_server: PostgresServer) -> None:
    with psycopg.connect(postgres_server.conninfo) as connection:
        connection.execute("CREATE TABLE totals (customer text PRIMARY KEY, orders int, cents int)")
    rows = [
        change("snapshot", 1, "ada", 3),
        change("snapshot", 2, "ben", 8),
        change("insert", 3, "ada", 5),
        change("insert", 4, "cy", 1),
        change("update", 2, "ada", 8),
        change("delete", 1),
        change("delete", 4),
        change("update", 3, "ben", 6),
    ]
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[3], clock=ManualClock()))
    env.set_parallelism(2)
    stream: Any = env.from_collection(rows).with_parallelism(1)
    orders = Table.from_row_changes(stream, attrgetter("number"))
    totals = orders.group_by(attrgetter("customer")).aggregate(
        Total, customer=Key(), orders=Count(), cents=Sum("cents")
    )
    sink = PostgresSink[Change[Total]](
        postgres_server.conninfo,
        "totals",
        Total._fields,
        row=lambda change: change.record,
        key=["customer"],
        deletes=lambda change: not change.kind.adds,
    )
    totals.upserts().to_sink(sink)
    env.execute("totals")
    with psycopg.connect(postgres_server.conninfo) as connection:
        found = connection.execute("SELECT * FROM totals ORDER BY customer").fetchall()
    assert found == [("ada", 1, 8), ("ben", 1, 6)]
