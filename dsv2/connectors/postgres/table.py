"""Lookup of a table in the server's catalog, with checks that it can be replicated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import sql

from dsv2.connectors.postgres.server import Connection, named
from dsv2.errors import JobError

__all__ = ("FollowedTable", "table_named", "table_numbered")

_COLUMNS = "pg_class.oid, nspname, relname, relkind::text, relpersistence::text, relreplident::text"
_TABLES = f"SELECT {_COLUMNS} FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
_NAMED = f"{_TABLES} WHERE pg_class.oid = to_regclass($1)"
_NUMBERED = f"{_TABLES} WHERE pg_class.oid = $1"
_KEY = """
SELECT attname, attnum, attgenerated <> '', indimmediate FROM pg_index
JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
WHERE indrelid = $1 AND indisprimary AND array_position(indkey::int2[], attnum) < indnkeyatts
ORDER BY array_position(indkey::int2[], attnum)
"""
_GENERATED = "SELECT attname FROM pg_attribute WHERE attrelid = $1 AND NOT attisdropped AND attgenerated <> ''"
_CHECKS_GENERATED = 180_000
"""The version of servers that refuse updates if FULL includes generated columns, which they do not publish."""
_BY_KEY, _WHOLE = "d", "f"  # replica identities that identify the changed row: DEFAULT and FULL


@dataclass(frozen=True)
class FollowedTable:
    """A table that can be replicated.

    Attributes:
        oid: The OID, which survives renaming but not dropping the table.
        schema: The name of the schema.
        name: The name of the table.
        key: The columns of the primary key: their names by their numbers.
        is_whole: Whether the log contains the whole old row of a change (REPLICA IDENTITY FULL).
    """

    oid: int
    schema: str
    name: str
    key: Mapping[int, str]
    is_whole: bool

    @property
    def identifier(self) -> sql.Identifier:
        """The name of the table in a statement."""
        return sql.Identifier(self.schema, self.name)


def table_named(connection: Connection, name: str) -> FollowedTable:
    """Look up a table by name. Raises ``JobError`` if it does not exist or cannot be replicated."""
    return _table(connection, _NAMED, named(name).as_string(), name)


def table_numbered(connection: Connection, oid: int, name: str) -> FollowedTable:
    """Look up a table by OID; ``name`` is for messages. Raises ``JobError`` if it is gone or cannot be replicated."""
    return _table(connection, _NUMBERED, oid, name)


def _table(connection: Connection, query: str, wanted: str | int, called: str) -> FollowedTable:
    found = connection.execute(query.encode(), [wanted]).fetchone()
    if found is None:
        raise JobError(f"Table {called} does not exist, or is no longer the table that the job began with.")
    oid, schema, name, kind, persistence, identity = found
    if (kind, persistence) != ("r", "p"):
        raise JobError(
            f"{called} is not an ordinary table. Views and partitioned, unlogged or temporary tables cannot be "
            f"replicated."
        )
    columns = connection.execute(_KEY.encode(), [oid]).fetchall()
    if not columns:
        raise JobError(f"Table {called} has no primary key. Add one, so that its rows can be identified.")
    key = {number: column for column, number, _, _ in columns}
    if generated := [column for column, _, is_generated, _ in columns if is_generated]:
        raise JobError(
            f"The primary key of {called} contains the generated column {', '.join(generated)}, which the server's log "
            f"does not contain. Choose other columns as primary key."
        )
    if not all(is_immediate for *_, is_immediate in columns):
        raise JobError(
            f"The primary key of {called} is DEFERRABLE, so it does not identify rows within a transaction, and the "
            f"server refuses to update or delete rows of such a table once their changes are logged. Replace it by a "
            f"PRIMARY KEY ({', '.join(key.values())}) that is not deferrable."
        )
    if identity not in (_BY_KEY, _WHOLE):
        raise JobError(
            f"The server's log does not identify the changed rows of {called}, because its replica identity is not the "
            f"primary key. Run ALTER TABLE {schema}.{name} REPLICA IDENTITY DEFAULT."
        )
    is_whole = identity == _WHOLE
    if is_whole and connection.info.server_version >= _CHECKS_GENERATED:
        _check_whole(connection, oid, called)
    return FollowedTable(oid, schema, name, key, is_whole)


def _check_whole(connection: Connection, oid: int, called: str) -> None:
    generated = [column for (column,) in connection.execute(_GENERATED.encode(), [oid])]
    if generated:
        raise JobError(
            f"The replica identity of {called} is FULL, and the table has the generated column {', '.join(generated)}. "
            f"The server refuses to update or delete rows of such a table once their changes are logged. Set REPLICA "
            f"IDENTITY DEFAULT, or drop the column."
        )
