"""Exactly-once writes to PostgreSQL: one transaction per subtask and micro-batch writes the rows and a ledger entry.

A transaction locks the entry of its subtask, so a second attempt waits for the first and then sees its result. Another
entry holds the parallelism of the sink. Transactions share its lock, so it changes only while none of them runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby

import psycopg
from psycopg import errors, sql

from dsv2.base.type_variables import T
from dsv2.connectors.postgres.server import Connection, Server, named, statement
from dsv2.connectors.postgres.settings import PostgresConnection, TableWriter
from dsv2.connectors.postgres.table_rows import RowError, TableRows
from dsv2.errors import JobError
from dsv2.sinks import SinkBatch, SinkInfo

_SINK_ITSELF = -1  # the subtask number of the entry that holds the sink's parallelism


@dataclass(frozen=True)
class BatchLedger:
    """The ledger entries of one sink of one job, in ``table``."""

    connection: PostgresConnection
    table: str
    info: SinkInfo

    def begin(self, batch_id: int) -> None:
        """Check that ``batch_id`` can be written exactly once. Called on the driver when a run begins.

        The parallelism determines which subtask writes which rows. If it has changed, no subtask of the previous run
        may have written ``batch_id`` already.

        Raises:
            JobError: The micro-batch cannot be written exactly once, or the server does not answer.
        """
        with closing(Server(self.connection)) as server:
            server.run(f"Cannot create table {self.table}", self._create)
            server.run(f"Cannot use table {self.table}", lambda connection: self._begin(connection, batch_id))

    def _create(self, connection: Connection) -> None:
        if connection.execute("SELECT to_regclass($1)", [named(self.table).as_string()]).fetchone() == (None,):
            columns = "sink text, subtask int, batch bigint NOT NULL, parallelism int NOT NULL, run text NOT NULL"
            connection.execute(
                self._statement(f"CREATE TABLE IF NOT EXISTS {{}} ({columns}, PRIMARY KEY (sink, subtask))")
            )

    def _begin(self, connection: Connection, batch_id: int) -> None:
        with connection.transaction():
            _, before, _ = self._locked(connection, _SINK_ITSELF, "FOR UPDATE")
            entries = self._statement("SELECT batch, run FROM {} WHERE sink = $1 AND subtask >= 0")
            written = [
                self.info.is_written(batch_id, *entry) for entry in connection.execute(entries, [self.info.name])
            ]
            if before == self.info.parallelism:
                return
            if any(written):
                raise JobError(
                    f"Micro-batch {batch_id} was written in part by {before} subtasks before the job failed, and "
                    f"{self.info.parallelism} subtasks cannot write the rest. Start the job with parallelism {before} "
                    f"for this sink, and change the parallelism after that micro-batch is complete."
                )
            self._update(connection, _SINK_ITSELF, batch_id)

    def write(self, batch: SinkBatch[T], writer: TableWriter[T]) -> None:
        """Write ``batch`` unless it has been written already. Raises ``JobError``."""
        what = f"Cannot write rows of {writer.table}"
        server = Server(self.connection)
        try:
            # Only connecting is retried: the records can be iterated only once.
            connection = server.run(what, lambda connection: connection)
            with connection.transaction():
                _, parallelism, _ = self._locked(connection, _SINK_ITSELF, "FOR SHARE")
                last, _, run_id = self._locked(connection, batch.subtask, "FOR UPDATE")
                if parallelism != self.info.parallelism:
                    raise JobError(
                        f"{what}: the job was restarted in the meantime, with {parallelism} subtasks of the sink."
                    )
                if not self.info.is_written(batch.batch_id, last, run_id):
                    rows = TableRows(connection, writer)
                    for part in batch.batches:
                        _write_rows(connection, rows, part.records)
                    self._update(connection, batch.subtask, batch.batch_id)
        except psycopg.Error as error:
            raise server.failure(what, error) from self.connection.presentable(error)
        finally:
            server.close()

    def _locked(self, connection: Connection, subtask: int, lock: str) -> tuple[int, int, str]:
        """Lock the entry of ``subtask``, which is created if needed. Returns its batch, parallelism and run id."""
        query = self._statement(f"SELECT batch, parallelism, run FROM {{}} WHERE sink = $1 AND subtask = $2 {lock}")
        entry = connection.execute(query, [self.info.name, subtask]).fetchone()
        if entry is None:
            insert = self._statement("INSERT INTO {} VALUES ($1, $2, -1, $3, $4) ON CONFLICT DO NOTHING")
            connection.execute(insert, [self.info.name, subtask, self.info.parallelism, self.info.run.run_id])
            entry = connection.execute(query, [self.info.name, subtask]).fetchone()
        assert entry is not None
        return entry[0], entry[1], entry[2]

    def _update(self, connection: Connection, subtask: int, batch_id: int) -> None:
        update = self._statement(
            "UPDATE {} SET batch = $1, parallelism = $2, run = $3 WHERE sink = $4 AND subtask = $5"
        )
        connection.execute(update, [batch_id, self.info.parallelism, self.info.run.run_id, self.info.name, subtask])

    def _statement(self, text: str) -> sql.Composed:
        return statement(text, named(self.table))


def _write_rows(connection: Connection, rows: TableRows[T], records: Sequence[T]) -> None:
    writer = rows.writer
    is_deletion = writer.deletes or (lambda record: False)
    cursor = connection.cursor()
    try:
        if (data := rows.data_of(records)) is not None:
            with cursor.copy(rows.copy) as copy:
                copy.write(data)
            return
        for deletes, group in groupby(records, key=is_deletion):
            if deletes:
                cursor.executemany(rows.delete, [rows.key_of(record) for record in group])
            else:
                cursor.executemany(rows.upsert, [rows.row_of(record) for record in group])
    except (errors.DataError, errors.IntegrityError, psycopg.ProgrammingError, RowError) as error:
        raise JobError(
            f"A row does not match the table {writer.table} ({', '.join(writer.columns)}): {error}"
        ) from error
