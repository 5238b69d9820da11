"""The statements that write the rows of records to a table, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from psycopg import sql

from dsv2.connectors.postgres.column_rules import plain, rule_of
from dsv2.connectors.postgres.server import Connection, listed, named, statement
from dsv2.connectors.postgres.table import table_of
from dsv2.connectors.postgres.table_writer import TableWriter

__all__ = ("RowError", "TableRows")

T = TypeVar("T")

_SHOWN_CHARACTERS = 200


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
        insert: Inserts a row.
        upsert: Inserts a row, or replaces that with the same key.
        delete: Deletes the row with a key.
        select: Compares a key with those of all rows.
    """

    def __init__(self, connection: Connection, writer: TableWriter[T], table: sql.Identifier | None = None) -> None:
        self.writer = writer
        table = table or named(writer.table)
        self.insert = statement(
            "INSERT INTO {} ({}) VALUES ({})", table, listed(writer.columns), _parameters(len(writer.columns))
        )
        self.upsert = self._upsert()
        found = table_of(connection, table)
        columns = {column.name: column for column in found.columns} if found else {}
        self._columns = [columns.get(name) for name in writer.columns]  # None: the server reports that it is missing
        self._rules = [rule_of(column.type, column.modifier) if column else _sent for column in self._columns]
        conditions = (
            statement(f"{{}} = ${number}", sql.Identifier(name)) for number, name in enumerate(writer.key, start=1)
        )
        has_key = sql.SQL(" AND ").join(conditions)
        self.delete = statement("DELETE FROM {} WHERE {}", table, has_key)
        self.select = statement("SELECT FROM {} WHERE {}", table, has_key)
        self._key = [writer.columns.index(name) for name in writer.key]

    def row_of(self, record: T) -> Sequence[Any]:
        """Return the parameters of ``insert`` and ``upsert``. Raises ``RowError``."""
        return self._values(record, range(len(self._rules)))

    def key_of(self, record: T) -> Sequence[Any]:
        """Return the parameters of ``delete`` and ``select``. Raises ``RowError``."""
        return self._values(record, self._key)

    def _values(self, record: T, indices: Sequence[int]) -> Sequence[Any]:
        row, rules = tuple(self.writer.row(record)), self._rules
        if len(row) != len(rules):
            raise RowError(f"A row has {len(row)} values for the columns {', '.join(self.writer.columns)}: {row!r}.")
        try:
            return [None if (value := row[index]) is None else rules[index](value) for index in indices]
        except Exception:  # a value that cannot be kept, or a scalar of NumPy or pandas
            return [self._kept(index, plain(row[index])) for index in indices]

    def _kept(self, index: int, value: Any) -> Any:
        try:
            return None if value is None else self._rules[index](value)
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


def _sent(value: Any) -> Any:
    return value


def _parameters(count: int) -> sql.SQL:
    return sql.SQL(", ".join(f"${number}" for number in range(1, count + 1)))
