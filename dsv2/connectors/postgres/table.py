"""A table as the server knows it, if it can be followed."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import sql

from dsv2.connectors.postgres.server import Connection, named
from dsv2.errors import JobError

__all__ = ("FollowedTable", "table_named", "table_numbered")

_COLUMNS = "pg_class.oid, nspname, relname, relkind::text, relpersistence::text, relreplident::text"
_TABLES = f"SELECT {_COLUMNS} FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
_NAMED = f"{_TABLES} WHERE pg_class.oid = to_regclass(%s)"
_NUMBERED = f"{_TABLES} WHERE pg_class.oid = %s"
_KEY = """
SELECT attname FROM pg_index
JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
WHERE indrelid = %s AND indisprimary AND array_position(indkey::int2[], attnum) < indnkeyatts
ORDER BY array_position(indkey::int2[], attnum)
"""
_BY_KEY, _WHOLE = "d", "f"  # by what the log tells which row it was that changed


@dataclass(frozen=True)
class FollowedTable:
    """``key``: the columns of its primary key. ``oid``: stays when it is renamed, goes when it is dropped."""

    oid: int
    schema: str
    name: str
    key: tuple[str, ...]

    @property
    def identifier(self) -> sql.Identifier:
        """Its name in a statement."""
        return sql.Identifier(self.schema, self.name)


def table_named(connection: Connection, name: str) -> FollowedTable:
    """The table called ``name``. Raises ``JobError`` if it is not there, or cannot be followed."""
    return _table(connection, _NAMED, named(name).as_string(), name)


def table_numbered(connection: Connection, oid: int, name: str) -> FollowedTable:
    """The table ``oid``, which the user calls ``name``. Raises ``JobError`` if it is gone, or cannot be followed."""
    return _table(connection, _NUMBERED, oid, name)


def _table(connection: Connection, query: str, wanted: str | int, called: str) -> FollowedTable:
    found = connection.execute(query.encode(), [wanted]).fetchone()
    if found is None:
        raise JobError(f"There is no table {called} in the database, or not any more the one that the job began with.")
    oid, schema, name, kind, persistence, identity = found
    if (kind, persistence) != ("r", "p"):
        raise JobError(
            f"{called} is no ordinary table: views and partitioned, unlogged or temporary tables cannot be followed."
        )
    key = tuple(column for (column,) in connection.execute(_KEY.encode(), [oid]))
    if not key:
        raise JobError(f"Table {called} has no primary key, which tells its rows apart: add one.")
    if identity not in (_BY_KEY, _WHOLE):
        raise JobError(
            f"The server's log does not tell which row of {called} it was that changed: its replica identity is not "
            f"the primary key. Say ALTER TABLE {schema}.{name} REPLICA IDENTITY DEFAULT."
        )
    return FollowedTable(oid, schema, name, key)
