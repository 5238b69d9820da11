"""The reader of ``PostgresSource``, which runs in tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar

from psycopg import sql

from dsv2.connectors.postgres.change import RowChange
from dsv2.connectors.postgres.change_decoder import ChangeDecoder
from dsv2.connectors.postgres.log import Log
from dsv2.connectors.postgres.pgoutput import ABSENT, Relation, RelationChange
from dsv2.connectors.postgres.replication import ROW_NUMBER, copy_of
from dsv2.connectors.postgres.replication_settings import ReplicationSettings
from dsv2.connectors.postgres.server import Connection, Server, statement
from dsv2.connectors.postgres.split import LOG, PostgresSplit, lsn_text
from dsv2.connectors.postgres.table_columns import Change, TableColumns, columns_of
from dsv2.record_batch import RecordBatch
from dsv2.sources import SourceReader, SplitBatch

__all__ = ("PostgresReader",)

T_co = TypeVar("T_co", covariant=True)

_ROWS_AT_ONCE = 2048
_FETCH = b"FETCH %d FROM dsv2_snapshot" % _ROWS_AT_ONCE


class PostgresReader(SourceReader[RowChange[T_co], PostgresSplit], Generic[T_co]):
    """Reads ranges of the snapshot and of the log in one task."""

    def __init__(self, settings: ReplicationSettings, decoder: ChangeDecoder[T_co]) -> None:
        self._settings = settings
        self._decoder = decoder
        self._server = Server(settings.connection)

    def read(self, start: PostgresSplit, stop: PostgresSplit, /) -> Iterator[RecordBatch[RowChange[T_co]]]:
        return self._read_log(start, stop) if start.name == LOG else self._read_snapshot(start, stop)

    def close(self) -> None:
        self._server.close()

    def _read_snapshot(self, start: PostgresSplit, stop: PostgresSplit) -> Iterator[RecordBatch[RowChange[T_co]]]:
        found = self._server.stream(
            f"Cannot read the snapshot of {self._settings.table}",
            lambda connection: self._rows(connection, start, stop.position),
        )
        while rows := list(islice(found, _ROWS_AT_ONCE)):
            changes = [change for _, change in rows]
            yield SplitBatch(changes, self._decoder.decoded, offsets=_numbers(rows), raw=self._decoder.raw)

    def _rows(self, connection: Connection, start: PostgresSplit, stop: int) -> Iterator[tuple[int, Change]]:
        copy = copy_of(connection, self._settings)
        described = connection.execute(statement("SELECT * FROM {} LIMIT 0", copy)).description or ()
        names = [column.name for column in described]
        key = [names.index(column.names[-1]) - 1 for column in start.key]  # without the row number
        types = [column.type_code for column in described]
        columns = TableColumns(names[1:], types[1:], key, self._decoder.text_columns)
        query = statement(
            "DECLARE dsv2_snapshot CURSOR FOR SELECT * FROM {0} WHERE {1} > {2} AND {1} <= {3} ORDER BY {1}",
            copy,
            sql.Identifier(ROW_NUMBER),
            sql.Literal(start.position),
            sql.Literal(stop),
        )
        with connection.transaction():
            connection.execute(query)
            while (found := connection.execute(_FETCH).pgresult) is not None and found.ntuples > 0:
                value, width = found.get_value, range(1, len(names))
                for row in range(found.ntuples):
                    number = int(value(row, 0) or 0)
                    yield number, Change("snapshot", columns, [value(row, column) for column in width])

    def _read_log(self, start: PostgresSplit, stop: PostgresSplit) -> Iterator[RecordBatch[RowChange[T_co]]]:
        columns, commits = _Columns(stop, self._decoder.text_columns), _CommitNumbers()
        log = Log(self._server, self._settings).changes(start.table, start.position, stop.position)
        found = ((row_change, change) for change in log for row_change in self._changes(change, columns.of(change)))
        while pairs := list(islice(found, _ROWS_AT_ONCE)):
            offsets = commits.numbered([change.commit_lsn for _, change in pairs])
            timestamps = [change.commit_ms for _, change in pairs]
            changes = [row_change for row_change, _ in pairs]
            yield SplitBatch(
                changes, self._decoder.decoded, timestamps=timestamps, offsets=offsets, raw=self._decoder.raw
            )

    def _changes(self, change: RelationChange, columns: TableColumns) -> Iterator[Change]:
        old, new = change.old, change.new
        if new is None:
            assert old is not None
            yield Change("delete", columns, old)
        elif old is None:
            yield Change(change.kind, columns, new)
        else:
            new = tuple(before if value is ABSENT else value for before, value in zip(old, new, strict=True))
            if columns.has_same_key(old, new):
                yield Change(change.kind, columns, new)
            else:
                yield Change("delete", columns, old)
                yield Change("insert", columns, new)


class _Columns:
    """The columns of the table as the log describes them, which change when the table is altered."""

    def __init__(self, split: PostgresSplit, as_text: frozenset[str]) -> None:
        self._split = split
        self._as_text = as_text
        self._relation: Relation | None = None

    def of(self, change: RelationChange) -> TableColumns:
        """Return the columns at the time of ``change``. Raises ``JobError`` if it has another key."""
        if self._relation is not change.relation:
            self._columns = columns_of(change.relation, self._split.key, self._as_text)
            self._relation = change.relation
        return self._columns


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


def _numbers(rows: Sequence[tuple[int, object]]) -> Callable[[], Sequence[int]]:
    return lambda: [number for number, _ in rows]
