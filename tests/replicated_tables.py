"""A PostgreSQL table that is replicated, and jobs that consist of a ``PostgresSource`` only."""

from __future__ import annotations

import itertools
from typing import Any

import psycopg

from dsv2.connectors.postgres import PostgresSource, RowChange, drop_replication
from dsv2.runtime.sources.offsets import WatermarkOrder
from dsv2.testing.connectors.source_run import SourceRun
from tests.durations import ms

NUMBERS = itertools.count()


class Table:
    """A table of a test, and the slot by which it is replicated."""

    def __init__(self, conninfo: str, columns: str) -> None:
        self.conninfo = conninfo
        self.name = f"followed_{next(NUMBERS)}"
        self.execute(f"CREATE TABLE {self.name} ({columns})")

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in one transaction and return the rows of the last one, if any. ``{}`` is the table."""
        with psycopg.connect(self.conninfo) as connection:
            for statement in statements:
                cursor = connection.execute(statement.format(self.name).encode())
            return cursor.fetchall() if cursor.description else []

    def source(self, **options: Any) -> PostgresSource[Any]:
        given = {"conninfo": self.conninfo, "table": self.name, "slot_name": self.name, **options}
        return PostgresSource(**{"decode": lambda row: row["name"], "retry_timeout": ms(120_000), **given})

    def drop_replication_objects(self) -> None:
        """Drop what a source has created."""
        drop_replication(self.conninfo, self.name, self.name)


class Run(SourceRun):
    """A run of a job that consists of a ``PostgresSource``."""

    def snapshot(self) -> list[RowChange[Any]]:
        """The complete snapshot, and the micro-batch in which readers learn that it has ended."""
        found = self.batch()
        while not self.watermark_senders():
            found += self.batch()
        return found

    def watermark_senders(self) -> list[int]:
        """The readers that send a watermark in the last micro-batch."""
        return [o.subtask for o in self.orders() if any(isinstance(step, WatermarkOrder) for step in o.steps)]

    def at(self) -> dict[str, int]:
        """The positions of the splits."""
        splits = (split["at"] for reader in self.offset["readers"] for split in reader["splits"])
        return {split["name"]: split["position"] for split in splits}


def summaries(changes: list[RowChange[Any]]) -> list[tuple[str, Any, Any]]:
    return [(change.kind, change.key[0], change.row) for change in changes]


def state_after(changes: list[RowChange[Any]], rows: dict[Any, Any] | None = None) -> dict[Any, Any]:
    """The table after applying ``changes`` to ``rows``."""
    rows = dict(rows or {})
    for change in changes:
        if change.row is None:
            rows.pop(change.key, None)
        else:
            rows[change.key] = change.row
    return rows
