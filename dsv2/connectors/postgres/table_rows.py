"""The statements that write the rows of records to a table, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from psycopg import sql

from dsv2.connectors.postgres.column_rules import plain, rule_of
from dsv2.connectors.postgres.server import Connection, listed, named, statement
from dsv2.connectors.postgres.table_writer import TableWriter

__all__ = ("RowError", "TableRows")

T = TypeVar("T")

_TYPES = """
WITH RECURSIVE own (name, type, modifier) AS (
    SELECT attname, atttypid, atttypmod FROM pg_attribute
    WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped
  UNION ALL
    SELECT name, typbasetype, CASE WHEN modifier < 0 THEN typtypmod ELSE modifier END FROM own
    JOIN pg_type ON pg_type.oid = type WHERE typtype = 'd'
)
SELECT name, type, modifier, format_type(type, modifier) FROM own
JOIN pg_type ON pg_type.oid = type WHERE typtype <> 'd'
"""
_UNKNOWN = (0, -1, "column of an unknown type")  # the server reports that it does not exist
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
        types = {name: of for name, *of in connection.execute(_TYPES, [table.as_string()])}
        self._types = [types.get(name, _UNKNOWN) for name in writer.columns]
        self._rules = [rule_of(oid, modifier) if oid else _sent for oid, modifier, _ in self._types]
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
            column, called = self.writer.columns[index], self._types[index][2]
            raise RowError(
                f"Column {column} of {self.writer.table} has the type {called}, which does not keep the "
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
