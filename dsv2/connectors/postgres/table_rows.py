"""The statements that write the rows of records to a table, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from psycopg import sql

from dsv2.connectors.postgres.server import Connection, listed, named, statement
from dsv2.connectors.postgres.table_writer import TableWriter

__all__ = ("TableRows",)

T = TypeVar("T")


class TableRows(Generic[T]):
    """Writes rows of ``writer.table``.

    Attributes:
        writer: The mapping of records to rows.
        insert: Inserts a row.
        upsert: Inserts a row, or replaces that with the same key.
        delete: Deletes the row with a key.
        select: Compares a key with those of all rows.
    """

    def __init__(self, connection: Connection, writer: TableWriter[T]) -> None:
        self.writer = writer
        table = named(writer.table)
        self.insert = statement(
            "INSERT INTO {} ({}) VALUES ({})", table, listed(writer.columns), _parameters(len(writer.columns))
        )
        self.upsert = self._upsert()
        conditions = (
            statement(f"{{}} = ${number}", sql.Identifier(name)) for number, name in enumerate(writer.key, start=1)
        )
        has_key = sql.SQL(" AND ").join(conditions)
        self.delete = statement("DELETE FROM {} WHERE {}", table, has_key)
        self.select = statement("SELECT FROM {} WHERE {}", table, has_key)
        self._key = [writer.columns.index(name) for name in writer.key]

    def row_of(self, record: T) -> Sequence[Any]:
        """Return the parameters of ``insert`` and ``upsert``. Raises ``ValueError``."""
        row = tuple(self.writer.row(record))
        if len(row) != len(self.writer.columns):
            raise ValueError(f"A row has {len(row)} values for the columns {', '.join(self.writer.columns)}: {row!r}.")
        return row

    def key_of(self, record: T) -> Sequence[Any]:
        """Return the parameters of ``delete`` and ``select``."""
        row = self.row_of(record)
        return [row[index] for index in self._key]

    def _upsert(self) -> sql.Composed:
        writer = self.writer
        if not writer.key:
            return self.insert
        others = [sql.Identifier(name) for name in writer.columns if name not in writer.key]
        assigned = sql.SQL(", ").join(statement("{0} = EXCLUDED.{0}", name) for name in others)
        action = statement("UPDATE SET {}", assigned) if others else sql.SQL("NOTHING")
        return statement("{} ON CONFLICT ({}) DO {}", self.insert, listed(writer.key), action)


def _parameters(count: int) -> sql.SQL:
    return sql.SQL(", ".join(f"${number}" for number in range(1, count + 1)))
