"""Writing each micro-batch once: a transaction per subtask, which notes the micro-batch beside the rows.

The note of a subtask is locked while its transaction runs, so a second attempt at the same waits for the first, and
then sees what came of it. A row of the sink itself tells its parallelism; transactions share it, and it changes only
when none of them is running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import psycopg
from psycopg import errors, sql

from dsv2.connectors.postgres.connection import PostgresConnection
from dsv2.connectors.postgres.server import Connection, Server, named, statement
from dsv2.connectors.postgres.table_writer import TableWriter
from dsv2.errors import JobError
from dsv2.sinks import SinkBatch, SinkInfo

__all__ = ("BatchLedger",)

T = TypeVar("T")
_SINK_ITSELF = -1  # its subtask, in the table


@dataclass(frozen=True)
class BatchLedger:
    """The notes of one sink of one job in ``table``."""

    connection: PostgresConnection
    table: str
    info: SinkInfo

    @property
    def _sink(self) -> str:
        return f"{self.info.job_id}/{self.info.uid}"

    def begin(self, batch_id: int) -> None:
        """Called on the driver when a run begins with ``batch_id``. Raises ``JobError`` if that cannot be written once.

        Which subtask writes which rows depends on how many there are. So if that has changed, no subtask of the run
        before may have written ``batch_id`` already.
        """
        server = Server(self.connection)
        try:
            server.ask(f"The table {self.table} cannot be made", self._create)
            server.ask(f"The table {self.table} cannot be used", lambda connection: self._begin(connection, batch_id))
        finally:
            server.close()

    def _create(self, connection: Connection) -> None:
        if connection.execute("SELECT to_regclass(%s)", [named(self.table).as_string()]).fetchone() == (None,):
            columns = "sink text, subtask int, batch bigint NOT NULL, parallelism int NOT NULL, run text NOT NULL"
            connection.execute(
                self._statement(f"CREATE TABLE IF NOT EXISTS {{}} ({columns}, PRIMARY KEY (sink, subtask))")
            )

    def _begin(self, connection: Connection, batch_id: int) -> None:
        with connection.transaction():
            _, before, _ = self._locked(connection, _SINK_ITSELF, "FOR UPDATE")
            notes = self._statement("SELECT batch, run FROM {} WHERE sink = %s AND subtask >= 0")
            written = [self.info.is_written(batch_id, *note) for note in connection.execute(notes, [self._sink])]
            if before == self.info.parallelism:
                return
            if any(written):
                raise JobError(
                    f"Micro-batch {batch_id} was written in part by {before} subtasks, before the job failed, and "
                    f"{self.info.parallelism} cannot write the rest. Start the job once with parallelism {before} of "
                    f"this sink, and change it when that micro-batch is done."
                )
            self._note(connection, _SINK_ITSELF, batch_id)

    def write(self, batch: SinkBatch[T], writer: TableWriter[T]) -> None:
        """Write ``batch``, unless it was written before. Raises ``JobError``."""
        what = f"Rows of {writer.table} cannot be written"
        server = Server(self.connection)
        try:
            # Once the records are being taken there is no second chance.
            connection = server.ask(what, lambda connection: connection)
            with connection.transaction():
                _, parallelism, _ = self._locked(connection, _SINK_ITSELF, "FOR SHARE")
                last, _, run_id = self._locked(connection, batch.subtask, "FOR UPDATE")
                if parallelism != self.info.parallelism:
                    raise JobError(
                        f"{what}: the job has begun again meanwhile, with {parallelism} subtasks of the sink."
                    )
                if not self.info.is_written(batch.batch_id, last, run_id):
                    for part in batch.batches:
                        _write_rows(connection, writer, part.records)
                    self._note(connection, batch.subtask, batch.batch_id)
        except psycopg.Error as error:
            raise server.failure(what, error) from self.connection.presentable(error)
        finally:
            server.close()

    def _locked(self, connection: Connection, subtask: int, lock: str) -> tuple[int, int, str]:
        """The last micro-batch noted for ``subtask``, with the parallelism and the run; locks the note, which is made
        if it is not there."""
        query = self._statement(f"SELECT batch, parallelism, run FROM {{}} WHERE sink = %s AND subtask = %s {lock}")
        note = connection.execute(query, [self._sink, subtask]).fetchone()
        if note is None:
            insert = self._statement("INSERT INTO {} VALUES (%s, %s, -1, %s, %s) ON CONFLICT DO NOTHING")
            connection.execute(insert, [self._sink, subtask, self.info.parallelism, self.info.run.run_id])
            note = connection.execute(query, [self._sink, subtask]).fetchone()
        assert note is not None
        return note[0], note[1], note[2]

    def _note(self, connection: Connection, subtask: int, batch_id: int) -> None:
        update = self._statement(
            "UPDATE {} SET batch = %s, parallelism = %s, run = %s WHERE sink = %s AND subtask = %s"
        )
        connection.execute(update, [batch_id, self.info.parallelism, self.info.run.run_id, self._sink, subtask])

    def _statement(self, text: str) -> sql.Composed:
        return statement(text, named(self.table))


def _write_rows(connection: Connection, writer: TableWriter[T], records: Sequence[T]) -> None:
    upsert, delete = _upsert(writer), _delete(writer)
    places = [writer.columns.index(name) for name in writer.key]
    is_deletion = writer.deletes or (lambda record: False)
    cursor = connection.cursor()
    try:
        for deletes, group in groupby(records, key=is_deletion):
            rows = [tuple(writer.row(record)) for record in group]
            if deletes:
                cursor.executemany(delete, [[row[place] for place in places] for row in rows])
            else:
                cursor.executemany(upsert, rows)
    except (errors.DataError, errors.IntegrityError, psycopg.ProgrammingError) as error:
        raise JobError(f"A row does not fit {writer.table} ({', '.join(writer.columns)}): {error}") from error


def _upsert(writer: TableWriter[Any]) -> sql.Composed:
    values = sql.SQL(", ").join([sql.Placeholder()] * len(writer.columns))
    insert = statement("INSERT INTO {} ({}) VALUES ({})", named(writer.table), _listed(writer.columns), values)
    if not writer.key:
        return insert
    others = [sql.Identifier(name) for name in writer.columns if name not in writer.key]
    assigned = sql.SQL(", ").join(statement("{0} = EXCLUDED.{0}", name) for name in others)
    action = statement("UPDATE SET {}", assigned) if others else sql.SQL("NOTHING")
    return statement("{} ON CONFLICT ({}) DO {}", insert, _listed(writer.key), action)


def _delete(writer: TableWriter[Any]) -> sql.Composed:
    conditions = [statement("{} = {}", sql.Identifier(name), sql.Placeholder()) for name in writer.key]
    return statement("DELETE FROM {} WHERE {}", named(writer.table), sql.SQL(" AND ").join(conditions))


def _listed(names: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
