"""The reader of ``PostgresSource``, which runs in tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from psycopg import sql

from dsv2.connectors.postgres.change import ChangeKind, RowChange
from dsv2.connectors.postgres.log import Log
from dsv2.connectors.postgres.pgoutput import RelationChange
from dsv2.connectors.postgres.replication import ROW_NUMBER
from dsv2.connectors.postgres.replication_settings import ReplicationSettings
from dsv2.connectors.postgres.server import Connection, Server, statement
from dsv2.connectors.postgres.split import LOG, PostgresSplit, lsn_text
from dsv2.connectors.postgres.table import FollowedTable, table_numbered
from dsv2.connectors.postgres.values import LogValues
from dsv2.record_batch import RecordBatch
from dsv2.sources import SourceReader, SplitBatch

__all__ = ("PostgresReader",)

T_co = TypeVar("T_co", covariant=True)

_ROWS_AT_ONCE = 2048

_Change: TypeAlias = tuple[ChangeKind, tuple[Any, ...], dict[str, Any] | None]
"""Kind, key and row of a change, as for ``RowChange``."""


class PostgresReader(SourceReader[RowChange[T_co], PostgresSplit], Generic[T_co]):
    """Reads ranges of the snapshot and of the log in one task."""

    def __init__(self, settings: ReplicationSettings, decode: Callable[[dict[str, Any]], T_co]) -> None:
        self._settings = settings
        self._decode = decode
        self._server = Server(settings.connection)

    def read(self, start: PostgresSplit, stop: PostgresSplit, /) -> Iterator[RecordBatch[RowChange[T_co]]]:
        table = self._table(start)
        if start.name == LOG:
            return self._read_log(table, start.position, stop.position)
        return self._read_snapshot(table, start.position, stop.position)

    def close(self) -> None:
        self._server.close()

    def _table(self, split: PostgresSplit) -> FollowedTable:
        name = self._settings.table
        return self._server.run(
            f"Cannot read table {name}", lambda connection: table_numbered(connection, split.table, name)
        )

    def _read_snapshot(self, table: FollowedTable, first: int, stop: int) -> Iterator[RecordBatch[RowChange[T_co]]]:
        found = self._server.stream(
            f"Cannot read the snapshot of {table.name}",
            lambda connection: self._rows(connection, table, first, stop),
        )
        while rows := list(islice(found, _ROWS_AT_ONCE)):
            changes: list[_Change] = [("snapshot", _key_of(table, row), row) for _, row in rows]
            yield SplitBatch(changes, self._decoded, offsets=_numbers(rows), raw=_undecoded)

    def _rows(
        self, connection: Connection, table: FollowedTable, first: int, stop: int
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        query = statement(
            "SELECT * FROM {0} WHERE {1} > {2} AND {1} <= {3} ORDER BY {1}",
            sql.Identifier(table.schema, self._settings.copy),
            sql.Identifier(ROW_NUMBER),
            sql.Literal(first),
            sql.Literal(stop),
        )
        with connection.transaction(), connection.cursor("dsv2_snapshot") as cursor:
            cursor.itersize = _ROWS_AT_ONCE
            cursor.execute(query)
            _, *names = [column.name for column in cursor.description or ()]  # without the row number
            for number, *values in cursor:
                yield number, dict(zip(names, values, strict=True))

    def _read_log(self, table: FollowedTable, start: int, stop: int) -> Iterator[RecordBatch[RowChange[T_co]]]:
        values = LogValues(self._server, table)
        found = (
            (row_change, change)
            for change in Log(self._server, self._settings).changes(table.oid, start, stop)
            for row_change in self._changes(values, table, change)
        )
        commits = _CommitNumbers()
        while pairs := list(islice(found, _ROWS_AT_ONCE)):
            offsets = commits.numbered([change.commit_lsn for _, change in pairs])
            timestamps = [change.commit_ms for _, change in pairs]
            changes = [row_change for row_change, _ in pairs]
            yield SplitBatch(changes, self._decoded, timestamps=timestamps, offsets=offsets, raw=_undecoded)

    def _changes(self, values: LogValues, table: FollowedTable, change: RelationChange) -> Iterator[_Change]:
        old_key = values.old_key(change)
        if change.new is None:
            assert old_key is not None
            yield "delete", old_key, None
            return
        row = values.new_row(change)
        kind: ChangeKind = change.kind
        key = _key_of(table, row)
        if old_key is not None and old_key != key:
            yield "delete", old_key, None
            kind = "insert"
        yield kind, key, row

    def _decoded(self, change: _Change) -> RowChange[T_co]:
        kind, key, row = change
        return RowChange(kind, key, None if row is None else self._decode(row))


class _CommitNumbers:
    """Offsets in the log: the LSN of the commit, and the number of the change in its transaction, from 1."""

    def __init__(self) -> None:
        self._lsn = -1
        self._number = 0

    def numbered(self, lsns: Sequence[int]) -> Callable[[], Sequence[str]]:
        """Return the offsets of changes with these LSNs, which follow those of the previous call."""
        numbers = []
        for lsn in lsns:
            self._number = self._number + 1 if lsn == self._lsn else 1
            self._lsn = lsn
            numbers.append(self._number)
        return lambda: [f"{lsn_text(lsn)}#{number}" for lsn, number in zip(lsns, numbers, strict=True)]


def _undecoded(change: _Change) -> RowChange[dict[str, Any]]:
    return RowChange(*change)


def _numbers(rows: Sequence[tuple[int, object]]) -> Callable[[], Sequence[int]]:
    return lambda: [number for number, _ in rows]


def _key_of(table: FollowedTable, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.key)
