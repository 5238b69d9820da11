"""The reader of ``PostgresSource``, which runs in tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

from psycopg import sql

from dsv2.connectors.postgres.change import ChangeKind, RowChange
from dsv2.connectors.postgres.log import Log
from dsv2.connectors.postgres.pgoutput import RelationChange
from dsv2.connectors.postgres.replication import ROW_NUMBER
from dsv2.connectors.postgres.replication_settings import ReplicationSettings
from dsv2.connectors.postgres.server import Connection, Server, statement
from dsv2.connectors.postgres.split import LOG, PostgresSplit
from dsv2.connectors.postgres.table import FollowedTable, table_numbered
from dsv2.connectors.postgres.values import LogValues
from dsv2.errors import JobError
from dsv2.record_batch import RecordBatch
from dsv2.sources import SourceReader

__all__ = ("PostgresReader",)

T_co = TypeVar("T_co", covariant=True)

_ROWS_AT_ONCE = 2048


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
        while rows := [self._change("snapshot", table, row) for row in islice(found, _ROWS_AT_ONCE)]:
            yield RecordBatch(rows)

    def _rows(self, connection: Connection, table: FollowedTable, first: int, stop: int) -> Iterator[dict[str, Any]]:
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
            for _, *values in cursor:
                yield dict(zip(names, values, strict=True))

    def _read_log(self, table: FollowedTable, start: int, stop: int) -> Iterator[RecordBatch[RowChange[T_co]]]:
        values = LogValues(self._server, table)
        found = (
            (row_change, change.commit_ms)
            for change in Log(self._server, self._settings).changes(table.oid, start, stop)
            for row_change in self._changes(values, table, change)
        )
        while pairs := list(islice(found, _ROWS_AT_ONCE)):
            yield RecordBatch([row_change for row_change, _ in pairs], [commit_ms for _, commit_ms in pairs])

    def _changes(self, values: LogValues, table: FollowedTable, change: RelationChange) -> Iterator[RowChange[T_co]]:
        old_key = values.old_key(change)
        if change.new is None:
            assert old_key is not None
            yield RowChange("delete", old_key, None)
            return
        row, kind = values.new_row(change), change.kind
        if old_key is not None and old_key != _key_of(table, row):
            yield RowChange("delete", old_key, None)
            kind = "insert"
        yield self._change(kind, table, row)

    def _change(self, kind: ChangeKind, table: FollowedTable, row: dict[str, Any]) -> RowChange[T_co]:
        key = _key_of(table, row)
        try:
            return RowChange(kind, key, self._decode(row))
        except Exception as error:
            raise JobError(
                f"Cannot decode the row of {table.name} with key {key}: {type(error).__qualname__}: {error}"
            ) from error


def _key_of(table: FollowedTable, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.key)
