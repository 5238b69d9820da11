"""The reader of ``PostgresSource``, which runs in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Generic

from dsv2.base.type_variables import T_co
from dsv2.connectors.postgres.change import RowChange
from dsv2.connectors.postgres.change_decoder import Change, ChangeDecoder, TableColumns, columns_of
from dsv2.connectors.postgres.log import Log
from dsv2.connectors.postgres.pgoutput import Relation
from dsv2.connectors.postgres.replication import ROW_NUMBER, copy_of
from dsv2.connectors.postgres.server import Connection, Server, listed, statement
from dsv2.connectors.postgres.settings import ReplicationSettings
from dsv2.connectors.postgres.split import LOG, PostgresSplit, lsn_text
from dsv2.model.record_batch import RecordBatch
from dsv2.sources import SourceReader, SplitBatch

_ROWS_AT_ONCE = 2048
_FETCH = b"FETCH %d FROM dsv2_snapshot" % _ROWS_AT_ONCE


class PostgresReader(SourceReader[RowChange[T_co], PostgresSplit], Generic[T_co]):
    """Reads ranges of the snapshot and of the log in one task."""

    def __init__(self, settings: ReplicationSettings, decoder: ChangeDecoder[T_co]) -> None:
        self._settings = settings
        self._decoder = decoder
        self._server = Server(settings.connection)

    def read(self, start: PostgresSplit, stop: PostgresSplit, /) -> Iterator[RecordBatch[RowChange[T_co]]]:
        if start.name == LOG:
            return self._read_log(start, stop)
        what = f"Cannot read the snapshot of {self._settings.table}"
        return self._server.stream(what, lambda connection: self._read_snapshot(connection, start, stop.position))

    def close(self) -> None:
        self._server.close()

    def _read_snapshot(
        self, connection: Connection, start: PostgresSplit, stop: int
    ) -> Iterator[RecordBatch[RowChange[T_co]]]:
        copy = copy_of(connection, self._settings)
        described = connection.execute(statement("SELECT * FROM {} LIMIT 0", copy)).description or []
        names, types = zip(*((column.name, column.type_code) for column in described[1:]), strict=True)
        key = [names.index(column.names[-1]) for column in start.key]
        columns = TableColumns(names, types, key, self._decoder.text_columns)
        query = statement(
            f"DECLARE dsv2_snapshot CURSOR FOR SELECT {{}} FROM {{}} "
            f"WHERE {ROW_NUMBER} > {start.position} AND {ROW_NUMBER} <= {stop} ORDER BY {ROW_NUMBER}",
            listed(names),
            copy,
        )
        with connection.transaction():
            connection.execute(query)
            first = start.position + 1
            while (found := connection.execute(_FETCH).pgresult) is not None and found.ntuples > 0:
                last = first + found.ntuples
                offsets = partial(range, first, last)  # row numbers have no gaps
                yield SplitBatch(columns.snapshot(found), self._decoder.decoded, offsets=offsets, raw=_letter)
                first = last

    def _read_log(self, start: PostgresSplit, stop: PostgresSplit) -> Iterator[RecordBatch[RowChange[T_co]]]:
        found = self._changes(start, stop)
        while part := list(islice(found, _ROWS_AT_ONCE)):
            changes, places, timestamps = zip(*part, strict=True)
            offsets = partial(_offsets, places)
            yield SplitBatch(changes, self._decoder.decoded, timestamps=timestamps, offsets=offsets, raw=_letter)

    def _changes(self, start: PostgresSplit, stop: PostgresSplit) -> Iterator[tuple[Change, tuple[int, int], int]]:
        """Yield the changes in the log, their places and their timestamps.

        A place is the LSN of the commit, and the number of the change in its transaction, from 1.
        """
        relation: Relation | None = None
        lsn, number = -1, 0
        for change in Log(self._server, self._settings).changes(start.table, start.position, stop.position):
            if relation is not change.relation:  # the table was altered
                relation = change.relation
                columns = columns_of(relation, stop.key, self._decoder.text_columns)
            if lsn != change.commit_lsn:
                lsn, number = change.commit_lsn, 0
            for row_change in columns.changes(change):
                number += 1
                yield row_change, (lsn, number), change.commit_ms


def _offsets(places: Sequence[tuple[int, int]]) -> Sequence[str]:
    return [f"{lsn_text(lsn)}#{number}" for lsn, number in places]


def _letter(change: Change) -> RowChange[dict[str, Any]]:
    return RowChange(*change)
