"""A PostgreSQL table that is replicated, and jobs that consist of a ``PostgresSource`` only."""

from __future__ import annotations

import itertools
import json
from typing import Any

import psycopg

from dsv2.base.clock import SystemClock
from dsv2.connectors.postgres import PostgresSource, RowChange, drop_replication
from dsv2.model import RecordBatch
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.offsets import BEFORE_START, SourceOffset, WatermarkOrder, orders
from dsv2.sinks import CollectSink
from tests.durations import ms
from tests.support import local_environment, operator_named

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
        return PostgresSource(**{"decode": lambda row: row["name"], "retry_timeout": ms(20_000), **given})

    def drop_replication_objects(self) -> None:
        """Drop what a source has created."""
        drop_replication(self.conninfo, self.name, self.name)


class Reader:
    """The reader's context of the job, without any function."""

    subtask, parallelism = 0, 1

    def emit_watermark(self, watermark: Any, /) -> None: ...
    def mark_idle(self) -> None: ...
    def mark_active(self) -> None: ...
    def count(self, name: str, amount: int = 1) -> None: ...


class Run:
    """A run of a job that consists of this source only: plans micro-batches and reads them."""

    def __init__(self, source: PostgresSource[Any], offset: SourceOffset = BEFORE_START, parallelism: int = 2) -> None:
        env = local_environment(parallelism)
        env.from_source(source).with_uid("in").to_sink(CollectSink())
        self.source = source
        self.offset = offset
        self.driver = SourceCoordinator(source, operator_named(env.build_plan(), "in"), SystemClock())

    def batch(self) -> list[RowChange[Any]]:
        """The changes of the next micro-batch, empty if there is no new data."""
        return self.repeated() if self.plan_next() else []

    def plan_next(self, *, commits: bool = True) -> bool:
        """Plan the next micro-batch and return whether there is one. ``commits`` marks the previous one as complete."""
        there = self.driver.next(self.offset)
        if there == self.offset:
            return False
        if commits and self.offset != BEFORE_START:
            self.driver.commit(self.offset)
        self.offset = json.loads(json.dumps(there))
        return True

    def repeated(self) -> list[RowChange[Any]]:
        """The changes of the last micro-batch, read again."""
        return [change for run in self.batches() for change in run.records]

    def batches(self) -> list[RecordBatch[RowChange[Any]]]:
        """The batches of the last micro-batch, read again."""
        splits = self.source.split_serializer
        found: list[RecordBatch[RowChange[Any]]] = []
        for order in orders(self.offset, splits):
            reader = self.source.create_reader(Reader())
            for portion in order.portions:
                found += reader.read(portion.start, portion.stop)
            reader.close()
        return found

    def snapshot(self) -> list[RowChange[Any]]:
        """The complete snapshot, and the micro-batch in which readers learn that it has ended."""
        found = self.batch()
        while not self.watermark_senders():
            found += self.batch()
        return found

    def watermark_senders(self) -> list[int]:
        """The readers that send a watermark in the last micro-batch."""
        return [
            order.subtask
            for order in orders(self.offset, self.source.split_serializer)
            if any(isinstance(step, WatermarkOrder) for step in order.steps)
        ]

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
