"""Checks rows before they are written: inserts them into a temporary table with the columns and checks of the table."""

from __future__ import annotations

from typing import Generic, TypeVar

import psycopg
from psycopg import errors, sql

from dsv2.connectors.postgres.connection import PostgresConnection
from dsv2.connectors.postgres.server import Connection, Server, named, statement
from dsv2.connectors.postgres.table import table_of
from dsv2.connectors.postgres.table_rows import TableRows
from dsv2.connectors.postgres.table_writer import TableWriter

__all__ = ("RowChecker",)

T = TypeVar("T")

_TABLE = sql.Identifier("dsv2_check")
_OF_THE_ROW = (errors.DataError, errors.IntegrityError, errors.DatatypeMismatch)


class RowChecker(Generic[T]):
    """Checks the rows of records against the types and the NOT NULL and CHECK constraints of a table.

    Unique and foreign keys are not checked, because they depend on other rows.
    """

    def __init__(self, connection: PostgresConnection, writer: TableWriter[T]) -> None:
        self._writer = writer
        self._server = Server(connection)
        self._prepared: Connection | None = None

    def check(self, record: T) -> None:
        """Raise the error that the server would raise for the row of ``record``, or that ``row`` raises.

        Raises:
            JobError: The server cannot be used.
        """
        what = f"Cannot check rows of {self._writer.table}"
        rejected = self._server.run(what, lambda connection: self._try(connection, record))
        if rejected is not None:
            raise rejected

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def _try(self, connection: Connection, record: T) -> Exception | None:
        if self._prepared is not connection:
            self._prepare(connection)
            self._prepared = connection
        if self._writer.deletes is not None and self._writer.deletes(record):
            query, values = self._rows.select, self._rows.key_of(record)
        else:
            query, values = self._rows.insert, self._rows.row_of(record)
        try:
            connection.execute(query, values)  # a transaction of its own, which leaves nothing behind
        except _OF_THE_ROW as error:
            return error
        except psycopg.ProgrammingError as error:
            if error.sqlstate is not None:
                raise
            return error  # the client refuses the number or the type of the values
        return None

    def _prepare(self, connection: Connection) -> None:
        like = "CREATE TEMPORARY TABLE {} (LIKE {} INCLUDING CONSTRAINTS) ON COMMIT DELETE ROWS"
        connection.execute(statement(like, _TABLE, named(self._writer.table)))
        self._rows = TableRows(connection, self._writer, _TABLE)
        made = table_of(connection, _TABLE)
        assert made is not None
        for column in made.columns:
            if column.is_not_null and column.name not in self._writer.columns:  # the table may have a default
                alter = "ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL"
                connection.execute(statement(alter, _TABLE, sql.Identifier(column.name)))
