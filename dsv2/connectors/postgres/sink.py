"""``PostgresSink``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Generic

from dsv2.base.type_variables import T
from dsv2.connectors.postgres.settings import PostgresConnection, TableWriter, parse_table_name
from dsv2.connectors.row_arguments import check_columns_of, check_key_of
from dsv2.model.resource import Resource
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo

if TYPE_CHECKING:
    from dsv2.connectors.postgres.table_rows import RowChecker


class PostgresSink(ParallelSink[T], Generic[T]):
    """Writes records as rows of a PostgreSQL table, exactly once.

    Each subtask writes a micro-batch in one transaction, which also stores the number of the micro-batch in
    ``batch_table``. A repeated micro-batch finds this number and writes nothing. Without ``key``, rows are inserted.
    With ``key``, a row replaces the existing row with the same key (upsert).
    """

    exactly_once = True
    accepts_other_records = True

    def __init__(
        self,
        conninfo: str,
        table: str,
        columns: Sequence[str],
        *,
        row: Callable[[T], Sequence[Any]] = tuple,  # type: ignore[assignment]  # of records that are tuples
        key: Sequence[str] = (),
        deletes: Callable[[T], bool] | None = None,
        batch_table: str = "dsv2_batches",
        retry_timeout: timedelta = timedelta(minutes=2),
    ) -> None:
        """Create the sink.

        Args:
            conninfo: The connection string of libpq. A password in it is never shown.
            table: The table as ``name`` or ``schema.name``, in the spelling of the server's catalog. A name with a dot
                is quoted as in SQL: ``'schema."a.b"'``.
            columns: The names of the columns to write.
            row: Returns the values of ``columns``. Not needed if records are tuples of these values.
            key: The columns that identify a row. They are among ``columns``, and the table has a unique index on them.
            deletes: Returns whether a record deletes the row with its key. Only the values of ``key`` are used then.
            batch_table: The table for the numbers of micro-batches, named like ``table``. It is created if needed;
                several jobs may share it.
            retry_timeout: How long to retry while the server does not answer.

        Raises:
            ConfigurationError: An argument is invalid, or the client library is not installed.
        """
        check_columns_of("PostgresSink", columns)
        check_key_of("PostgresSink", columns, key, deletes=deletes is not None)
        for name in (table, batch_table):
            parse_table_name(name)
        self._connection = PostgresConnection("PostgresSink", conninfo, retry_timeout)
        self._writer = TableWriter(table, tuple(columns), row, tuple(key), deletes)
        self._batch_table = batch_table
        self._checker = Resource(partial(_row_checker, self._connection, self._writer), close=methodcaller("close"))

    def __repr__(self) -> str:
        return f"PostgresSink({self._writer.table} at {self._connection})"

    def check_record(self, record: T) -> None:
        """Raise an error if the row of ``record`` violates the types, NOT NULL or CHECK constraints of the table.

        It is inserted into a temporary table like the table, so the user needs the privilege TEMPORARY.
        """
        self._checker.get().check(record)

    @property
    def dsv2_takes_columns(self) -> bool:
        return self._writer.takes_columns

    @property
    def dsv2_why_rows(self) -> str:
        return "" if self._writer.takes_columns else "it has a key, or a function as row"

    def describe_target(self) -> str:
        return f"{self._writer.table} at {self._connection}, micro-batches in {self._batch_table}"

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        from dsv2.connectors.postgres.batch_ledger import BatchLedger

        BatchLedger(self._connection, self._batch_table, info).begin(batch_id)

    def write(self, batch: SinkBatch[T]) -> None:
        from dsv2.connectors.postgres.batch_ledger import BatchLedger

        BatchLedger(self._connection, self._batch_table, batch.info).write(batch, self._writer)


def _row_checker(connection: PostgresConnection, writer: TableWriter[T]) -> RowChecker[T]:
    from dsv2.connectors.postgres.table_rows import RowChecker

    return RowChecker(connection, writer)
