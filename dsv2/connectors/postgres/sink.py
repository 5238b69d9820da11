"""``PostgresSink``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

from dsv2.connectors.postgres.connection import PostgresConnection
from dsv2.connectors.postgres.table_writer import TableWriter
from dsv2.errors import ConfigurationError
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo

__all__ = ("PostgresSink",)

T = TypeVar("T")


class PostgresSink(ParallelSink[T], Generic[T]):
    """Writes records as rows of a PostgreSQL table, exactly once.

    A subtask writes a micro-batch in one transaction, which also notes the number of the micro-batch in
    ``batch_table``; one that is repeated finds that and writes nothing. Without ``key`` rows are added; with it, each
    row replaces the one with the same key, if there is one.
    """

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
        """``conninfo``: as libpq takes it; a password in it is never shown. ``table``, with its schema or without, in
        the upper and lower case of the server's catalog.

        ``row``: the values for ``columns``; may be left out if records are tuples (NamedTuples) of just these.
        ``key``: some of ``columns``, for which the table has a unique index. ``deletes``: says of which records the row
        with that key is to be deleted; only the values of ``key`` are looked at then.
        ``batch_table``: is made if it is not there; several jobs may share it. ``retry_timeout``: how long to try
        when the server does not answer.

        Raises ``ConfigurationError``; also if the client library is missing.
        """
        if isinstance(columns, str) or not columns or len(set(columns)) < len(columns):
            raise ConfigurationError(f"PostgresSink takes a list of the names of different columns, not {columns!r}.")
        if unknown := [name for name in key if name not in columns]:
            raise ConfigurationError(f"The key of PostgresSink is among its columns, but {', '.join(unknown)} is not.")
        if deletes is not None and not key:
            raise ConfigurationError("PostgresSink deletes rows by their key: give it one, or leave out deletes.")
        self._connection = PostgresConnection.checked("PostgresSink", conninfo, retry_timeout)
        self._writer = TableWriter(table, tuple(columns), row, tuple(key), deletes)
        self._batch_table = batch_table

    def __repr__(self) -> str:
        return f"PostgresSink({self._writer.table} at {self._connection})"

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        from dsv2.connectors.postgres.batch_ledger import BatchLedger

        BatchLedger(self._connection, self._batch_table, info).begin(batch_id)

    def write(self, batch: SinkBatch[T]) -> None:
        from dsv2.connectors.postgres.batch_ledger import BatchLedger

        BatchLedger(self._connection, self._batch_table, batch.info).write(batch, self._writer)
