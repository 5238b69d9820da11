"""Tables in the server's catalog, with checks that they can be replicated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import sql

from dsv2.connectors.postgres.server import Connection, named
from dsv2.errors import JobError

_TABLE = """
WITH RECURSIVE found AS (
    SELECT pg_class.oid, nspname, relname, relkind = 'r' AND relpersistence = 'p', relreplident::text
    FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE pg_class.oid = coalesce($1::oid, to_regclass($2)::oid)
), own (number, type, modifier) AS (
    SELECT attnum, atttypid, atttypmod FROM pg_attribute JOIN found ON attrelid = oid
    WHERE attnum > 0 AND NOT attisdropped
  UNION ALL
    SELECT number, typbasetype, CASE WHEN modifier < 0 THEN typtypmod ELSE modifier END FROM own
    JOIN pg_type ON pg_type.oid = type WHERE typtype = 'd'
)
SELECT found.*, attname, number, type, modifier, format_type(type, modifier), attgenerated <> '', attnotnull,
       array_position(indkey::int2[], number), indimmediate
FROM found LEFT JOIN (
    pg_attribute JOIN own ON attnum = number JOIN pg_type ON pg_type.oid = type AND typtype <> 'd'
) ON attrelid = found.oid
LEFT JOIN pg_index ON indrelid = found.oid AND indisprimary AND array_position(indkey::int2[], number) < indnkeyatts
ORDER BY number
"""
_CHECKS_GENERATED = 180_000
"""The version of servers that refuse updates if FULL includes generated columns, which they do not publish."""
_BY_KEY, _WHOLE = "d", "f"  # replica identities that identify the changed row: DEFAULT and FULL


class TableColumn(NamedTuple):
    """A column of a table.

    Attributes:
        name: The name.
        number: The number, which survives renaming.
        type: The OID of the type; of a domain, that of its base type.
        modifier: The modifier of that type, such as a length. -1: none.
        type_name: The type as SQL writes it.
        is_generated: Whether the column is generated.
        is_not_null: Whether the column is NOT NULL.
        key_position: The position in the primary key, from 0; None for other columns.
        key_is_immediate: Whether the primary key is not DEFERRABLE; None for other columns.
    """

    name: str
    number: int
    type: int
    modifier: int
    type_name: str
    is_generated: bool
    is_not_null: bool
    key_position: int | None
    key_is_immediate: bool | None


@dataclass(frozen=True)
class CatalogTable:
    """A table.

    Attributes:
        oid: The OID, which survives renaming but not dropping the table.
        schema: The name of the schema.
        name: The name of the table.
        is_ordinary: Whether it is neither a view nor partitioned, unlogged or temporary.
        identity: The replica identity, as in the catalog.
        columns: The columns in their order.
    """

    oid: int
    schema: str
    name: str
    is_ordinary: bool
    identity: str
    columns: Sequence[TableColumn]

    @property
    def key(self) -> list[TableColumn]:
        """The columns of the primary key, in its order."""
        by_position = {column.key_position: column for column in self.columns if column.key_position is not None}
        return [by_position[position] for position in sorted(by_position)]

    @property
    def is_whole(self) -> bool:
        """True if the log contains the whole old row of a change (REPLICA IDENTITY FULL)."""
        return self.identity == _WHOLE

    @property
    def identifier(self) -> sql.Identifier:
        """The name of the table in a statement."""
        return sql.Identifier(self.schema, self.name)


def table_of(connection: Connection, name: sql.Identifier, oid: int | None = None) -> CatalogTable | None:
    """Look up the table ``oid`` or, without an OID, ``name``. Returns None if it does not exist."""
    found = connection.execute(_TABLE, [oid, name.as_string()]).fetchall()
    if not found:
        return None
    oid, schema, name_in_schema, is_ordinary, identity, *first = found[0]
    columns = [TableColumn(*row[-len(first) :]) for row in found if first[0] is not None]
    return CatalogTable(oid, schema, name_in_schema, is_ordinary, identity, columns)


def takes_copies(connection: Connection, table: CatalogTable) -> bool:
    """Return whether ``COPY`` inserts rows as ``INSERT`` does: not by rules, and without row-level security."""
    query = b"SELECT relkind = 'r' AND NOT relhasrules AND NOT relrowsecurity FROM pg_class WHERE oid = $1"
    return connection.execute(query, [table.oid]).fetchone() == (True,)


def replicated_table(connection: Connection, name: str, oid: int | None = None) -> CatalogTable:
    """Look up a table like ``table_of``. Raises ``JobError`` if it does not exist or cannot be replicated."""
    table = table_of(connection, named(name), oid)
    if table is None:
        raise JobError(f"Table {name} does not exist, or is no longer the table that the job began with.")
    if not table.is_ordinary:
        raise JobError(
            f"{name} is not an ordinary table. Views and partitioned, unlogged or temporary tables cannot be "
            f"replicated."
        )
    if not table.key:
        raise JobError(f"Table {name} has no primary key. Add one, so that its rows can be identified.")
    if generated := _generated(table.key):
        raise JobError(
            f"The primary key of {name} contains the generated column {generated}, which the server's log does not "
            f"contain. Choose other columns as primary key."
        )
    if not all(column.key_is_immediate for column in table.key):
        raise JobError(
            f"The primary key of {name} is DEFERRABLE, so it does not identify rows within a transaction, and the "
            f"server refuses to update or delete rows of such a table once their changes are logged. Replace it by a "
            f"PRIMARY KEY ({', '.join(column.name for column in table.key)}) that is not deferrable."
        )
    if table.identity not in (_BY_KEY, _WHOLE):
        raise JobError(
            f"The server's log does not identify the changed rows of {name}, because its replica identity is not the "
            f"primary key. Run ALTER TABLE {table.schema}.{table.name} REPLICA IDENTITY DEFAULT."
        )
    generated = _generated(table.columns)
    if table.is_whole and generated and connection.info.server_version >= _CHECKS_GENERATED:
        raise JobError(
            f"The replica identity of {name} is FULL, and the table has the generated column {generated}. The server "
            f"refuses to update or delete rows of such a table once their changes are logged. Set REPLICA IDENTITY "
            f"DEFAULT, or drop the column."
        )
    return table


def _generated(columns: Iterable[TableColumn]) -> str:
    return ", ".join(column.name for column in columns if column.is_generated)
