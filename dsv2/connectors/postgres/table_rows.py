"""The rows of records: statements that write them to a table, and checks before they are written."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from typing import Any, Generic

import psycopg
from psycopg import errors, sql

from dsv2.base.columnar import Columnar
from dsv2.base.type_variables import T
from dsv2.connectors.postgres.adapters import ADAPTERS, ColumnRule, plain, rule_of
from dsv2.connectors.postgres.server import Connection, Server, listed, named, statement
from dsv2.connectors.postgres.settings import PostgresConnection, TableWriter
from dsv2.connectors.postgres.table import table_of, takes_copies

_SHOWN_CHARACTERS = 200
_TABLE = sql.Identifier("dsv2_check")
_OF_THE_ROW = (errors.DataError, errors.IntegrityError, errors.DatatypeMismatch)


class RowError(ValueError):
    """A row has a value that the table does not keep."""


class TableRows(Generic[T]):
    """Writes rows of ``writer.table``.

    Args:
        connection: The connection, which looks up the types of the columns.
        writer: The mapping of records to rows.
        table: Another table with the same columns, to which the rows are written. None: ``writer.table``.

    Attributes:
        writer: The mapping of records to rows.
        columns: The columns of the table.
        insert: Inserts a row.
        upsert: Inserts a row, or replaces that with the same key.
        delete: Deletes the row with a key.
        copy: Inserts the data of ``data_of``.
    """

    def __init__(self, connection: Connection, writer: TableWriter[T], table: sql.Identifier | None = None) -> None:
        self.writer = writer
        table = table or named(writer.table)
        self.insert = statement(
            "INSERT INTO {} ({}) VALUES ({})", table, listed(writer.columns), _parameters(len(writer.columns))
        )
        self.upsert = self._upsert()
        found = table_of(connection, table)
        self.columns = found.columns if found else ()
        columns = {column.name: column for column in self.columns}
        self._columns = [columns.get(name) for name in writer.columns]  # None: the server reports that it is missing
        rules = [rule_of(column.type, column.modifier) if column else _sent for column in self._columns]
        key, values = listed(writer.key), _parameters(len(writer.key))
        self.delete = statement("DELETE FROM {} WHERE ({}) = ({})", table, key, values)
        self._all = list(enumerate(rules))
        self._key = [self._all[writer.columns.index(name)] for name in writer.key]
        self.copy = statement("COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')", table, listed(writer.columns))
        self._connection, self._table = connection, found

    def data_of(self, records: Sequence[T]) -> bytes | None:
        """Return columnar records as data of ``copy``; None if rows must be written one by one."""
        if not isinstance(records, Columnar) or not self._can_copy:
            return None
        names, columns = self.writer.fields(records.kind), [column for column in self._columns if column is not None]
        types = [(info.name, column.modifier) for column in columns if (info := ADAPTERS.types.get(column.type))]
        if names is None or len(types) < len(names):
            return None
        module = import_module("dsv2.arrow.copy_data")  # a room above, which columnar records have loaded
        data: bytes | None = module.copy_data(records, names, types)
        return data

    @cached_property
    def _can_copy(self) -> bool:
        return self.writer.takes_columns and self._table is not None and takes_copies(self._connection, self._table)

    def row_of(self, record: T) -> Sequence[Any]:
        """Return the parameters of ``insert`` and ``upsert``. Raises ``RowError``."""
        return self._values(record, self._all)

    def key_of(self, record: T) -> Sequence[Any]:
        """Return the parameters of ``delete``. Raises ``RowError``."""
        return self._values(record, self._key)

    def _values(self, record: T, rules: Sequence[tuple[int, ColumnRule]]) -> Sequence[Any]:
        row = tuple(self.writer.row(record))
        if len(row) != len(self._all):
            raise RowError(f"A row has {len(row)} values for the columns {', '.join(self.writer.columns)}: {row!r}.")
        try:
            return [None if (value := row[index]) is None else rule(value) for index, rule in rules]
        except Exception:  # a value that cannot be kept, or a scalar of NumPy or pandas
            return [self._kept(index, rule, plain(row[index])) for index, rule in rules]

    def _kept(self, index: int, rule: ColumnRule, value: Any) -> Any:
        try:
            return None if value is None else rule(value)
        except Exception as error:
            column = self._columns[index]
            assert column is not None
            raise RowError(
                f"Column {column.name} of {self.writer.table} has the type {column.type_name}, which does not keep the "
                f"{type(value).__qualname__} {repr(value)[:_SHOWN_CHARACTERS]}: {error}. Convert it in row."
            ) from error

    def _upsert(self) -> sql.Composed:
        writer = self.writer
        if not writer.key:
            return self.insert
        others = [sql.Identifier(name) for name in writer.columns if name not in writer.key]
        assigned = sql.SQL(", ").join(statement("{0} = EXCLUDED.{0}", name) for name in others)
        action = statement("UPDATE SET {}", assigned) if others else sql.SQL("NOTHING")
        return statement("{} ON CONFLICT ({}) DO {}", self.insert, listed(writer.key), action)


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
            query, values = self._rows.delete, self._rows.key_of(record)
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
        for column in self._rows.columns:
            if column.is_not_null and column.name not in self._writer.columns:  # the table may have a default
                alter = "ALTER TABLE {} ALTER COLUMN {} DROP NOT NULL"
                connection.execute(statement(alter, _TABLE, sql.Identifier(column.name)))


def _sent(value: Any) -> Any:
    return value


def _parameters(count: int) -> sql.SQL:
    return sql.SQL(", ".join(f"${number}" for number in range(1, count + 1)))
