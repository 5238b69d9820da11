"""The database objects that a ``PostgresSource`` creates: a replication slot, a publication and a copy of the table.

The server creates the copy in the snapshot that the slot exports. So the copy and the log fit together exactly, and
both can be read repeatedly: the copy does not change, and the slot retains changes until they are confirmed. Reads of
the table itself would not be repeatable. The cost is disk space for the copy until it has been read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from psycopg import sql

from dsv2.base.type_variables import T
from dsv2.connectors.postgres.change_decoder import another_key
from dsv2.connectors.postgres.log import Log, confirmed_lsn
from dsv2.connectors.postgres.server import Connection, Server, listed, named, opened, statement
from dsv2.connectors.postgres.settings import ReplicationSettings
from dsv2.connectors.postgres.split import LOG, KeyColumn, PostgresSplit, lsn_text, parse_lsn
from dsv2.connectors.postgres.table import CatalogTable, replicated_table
from dsv2.errors import JobError

ROW_NUMBER = "dsv2_row"
"""The first column of the copy: row numbers from 1, in the order of the primary key."""

_PUBLISHED = """
SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate AND NOT EXISTS (
    SELECT FROM pg_publication_rel AS part WHERE prpubid = pg_publication.oid AND prrelid = $1
    AND (to_jsonb(part) ->> 'prqual' IS NOT NULL OR to_jsonb(part) ->> 'prattrs' IS NOT NULL)
)
FROM pg_publication WHERE pubname = $2 AND EXISTS (
    SELECT FROM pg_publication_tables AS part
    WHERE part.pubname = pg_publication.pubname AND schemaname = $3 AND tablename = $4
)
"""
_COPIES = """
SELECT nspname, relname, obj_description(pg_class.oid, 'pg_class')
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE relname = $1 AND relkind = 'r'
"""
_DROP_TABLE = "DROP TABLE {}"
_DROP_SLOT = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1"


class Replication:
    """Creates, checks and drops the database objects. Used on the driver."""

    def __init__(self, settings: ReplicationSettings) -> None:
        self._settings = settings
        self._server = Server(settings.connection)
        self.log = Log(self._server, settings)

    def begin(self) -> tuple[int, PostgresSplit]:
        """Create the objects, or reuse those of a failed start that never called ``claim``.

        Returns:
            The number of rows of the copy, and the log at its beginning.

        Raises:
            JobError: The slot exists already, or the objects cannot be created.
        """
        return self._run("replicate", self._begin)

    def check(self, split: PostgresSplit) -> tuple[KeyColumn, ...]:
        """Return the key of ``split`` with the current names of its columns.

        Raises:
            JobError: Slot, publication, table or primary key are no longer those that the job began with.
        """
        return self._run("replicate", lambda connection: self._check(connection, split))

    def claim(self) -> None:
        """Prevent other jobs from reusing the objects."""
        self._run("claim", lambda connection: self._for_copies(connection, "COMMENT ON TABLE {} IS NULL"))

    def drop_copy(self) -> None:
        """Drop the copy if it exists."""
        self._run("drop the copy of", lambda connection: self._for_copies(connection, _DROP_TABLE))

    def drop(self) -> None:
        """Drop all objects except a publication of the user."""
        self._run("drop the replication of", self._drop)

    def close(self) -> None:
        """Close the connection."""
        self._server.close()

    def _run(self, what: str, call: Callable[[Connection], T]) -> T:
        return self._server.run(f"Cannot {what} table {self._settings.table}", call)

    def _begin(self, connection: Connection) -> tuple[int, PostgresSplit]:
        self._check_level(connection)
        table = replicated_table(connection, self._settings.table)
        confirmed = confirmed_lsn(connection, self._settings.slot)
        if confirmed is not None and not self._settings.replaces_slot:
            return self._reuse(connection, table, confirmed)
        connection.execute(_DROP_SLOT, [self._settings.slot])
        self._for_copies(connection, _DROP_TABLE)
        self._publish(connection, table)
        return self._copy_at_slot(connection, table)

    def _check_level(self, connection: Connection) -> None:
        ((level,),) = connection.execute("SHOW wal_level").fetchall()
        if level != "logical":
            raise JobError(
                f"Logical replication requires wal_level = logical, but wal_level is {level}. Set it in "
                f"postgresql.conf, and restart the server ({self._server!r})."
            )

    def _reuse(self, connection: Connection, table: CatalogTable, lsn: int) -> tuple[int, PostgresSplit]:
        unclaimed = [copy for copy, comment in _copies(connection, self._settings) if comment == _mark(table, lsn)]
        if not unclaimed:
            slot = self._settings.slot
            raise JobError(
                f"The replication slot {slot} already exists. If another job uses it, choose another slot_name. If an "
                f"earlier start of this job left it behind, set if_slot_exists='replace'."
            )
        count = statement(f"SELECT coalesce(max({ROW_NUMBER}), 0) FROM {{}}", unclaimed[0])
        ((rows,),) = connection.execute(count).fetchall()
        return rows, _log(table, lsn)

    def _publish(self, connection: Connection, table: CatalogTable) -> None:
        if self._is_published(connection, table):
            return
        publication = self._settings.publication
        if self._settings.own_publication is not None:
            raise JobError(
                f"The publication {publication} must contain table {table.schema}.{table.name} with all columns, all "
                f"rows and all kinds of changes."
            )
        name = sql.Identifier(publication)
        connection.execute(statement("DROP PUBLICATION IF EXISTS {}", name))
        connection.execute(statement("CREATE PUBLICATION {} FOR TABLE ONLY {}", name, table.identifier))

    def _is_published(self, connection: Connection, table: CatalogTable) -> bool:
        found = connection.execute(_PUBLISHED, [table.oid, self._settings.publication, table.schema, table.name])
        return found.fetchone() == (True,)

    def _check(self, connection: Connection, split: PostgresSplit) -> tuple[KeyColumn, ...]:
        oid = split.table
        if confirmed_lsn(connection, self._settings.slot) is None:
            raise JobError(
                f"The replication slot {self._settings.slot} was dropped, so changes of {self._settings.table} are "
                f"lost. Start the job with a new checkpoint."
            )
        table = replicated_table(connection, self._settings.table, oid)
        query = "SELECT to_regclass($1)::oid"
        if connection.execute(query, [named(self._settings.table).as_string()]).fetchone() != (oid,):
            raise JobError(
                f"The job began with table {table.schema}.{table.name}, but {self._settings.table} is now a different "
                f"table. To read that one, start the job with a new checkpoint."
            )
        if not self._is_published(connection, table):
            raise JobError(
                f"The publication {self._settings.publication} no longer contains all of table "
                f"{table.schema}.{table.name}, so changes are lost. Start the job with a new checkpoint."
            )
        return _current_names(table, split.key)

    def _copy_at_slot(self, connection: Connection, table: CatalogTable) -> tuple[int, PostgresSplit]:
        # A temporary slot becomes permanent only after the copy is complete. Until then it ends with its connection.
        slot = self._settings.slot
        with opened(self._settings.connection, replication="database") as exporting:
            temporary = f"{slot}_{exporting.info.backend_pid}"
            create = statement(
                "CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT", sql.Identifier(temporary)
            )
            ((_, lsn, snapshot, _),) = exporting.execute(create).fetchall()
            rows = self._copy(connection, table, snapshot, parse_lsn(lsn))
            keep = "SELECT pg_copy_logical_replication_slot({}, {}, false)"
            exporting.execute(statement(keep, sql.Literal(temporary), sql.Literal(slot)))
        return rows, _log(table, parse_lsn(lsn))

    def _copy(self, connection: Connection, table: CatalogTable, snapshot: str, lsn: int) -> int:
        copy = sql.Identifier(table.schema, self._settings.copy)
        select = statement(
            f"SELECT row_number() OVER (ORDER BY {{}}) AS {ROW_NUMBER}, {{}} FROM ONLY {{}}",
            listed(column.name for column in table.key),
            listed(column.name for column in table.columns if not column.is_generated),
            table.identifier,
        )
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute(statement("SET TRANSACTION SNAPSHOT {}", sql.Literal(snapshot)))
            rows = connection.execute(statement("CREATE TABLE {} AS {}", copy, select)).rowcount
            connection.execute(statement(f"ALTER TABLE {{}} ADD PRIMARY KEY ({ROW_NUMBER})", copy))
            connection.execute(statement("COMMENT ON TABLE {} IS {}", copy, sql.Literal(_mark(table, lsn))))
        return rows

    def _for_copies(self, connection: Connection, text: str) -> None:
        """Run a statement for the copy if it exists (or for several copies, in different schemas)."""
        for copy, _ in _copies(connection, self._settings):
            connection.execute(statement(text, copy))

    def _drop(self, connection: Connection) -> None:
        connection.execute(_DROP_SLOT, [self._settings.slot])
        self._for_copies(connection, _DROP_TABLE)
        if self._settings.own_publication is None:
            connection.execute(statement("DROP PUBLICATION IF EXISTS {}", sql.Identifier(self._settings.publication)))


def copy_of(connection: Connection, settings: ReplicationSettings) -> sql.Identifier:
    """Look up the copy of the table, which remains in its schema when the table is moved. Raises ``JobError``."""
    for copy, _ in _copies(connection, settings):
        return copy
    raise JobError(
        f"The table {settings.copy}, from which the snapshot of {settings.table} is read, was dropped. Start the job "
        f"with a new checkpoint."
    )


def _copies(connection: Connection, settings: ReplicationSettings) -> list[tuple[sql.Identifier, str | None]]:
    """The tables with the name of the copy, in all schemas, and their comments."""
    found = connection.execute(_COPIES, [settings.copy]).fetchall()
    return [(sql.Identifier(schema, name), comment) for schema, name, comment in found]


def _log(table: CatalogTable, lsn: int) -> PostgresSplit:
    key = tuple(KeyColumn(column.number, column.type, (column.name,)) for column in table.key)
    return PostgresSplit(LOG, table.oid, lsn, None, key)


def _current_names(table: CatalogTable, key: tuple[KeyColumn, ...]) -> tuple[KeyColumn, ...]:
    """Add the current names of the columns of ``key``. That it was replaced is left to the log, if it can show that."""
    now = {column.number: column.name for column in table.key}
    if set(now) != {column.number for column in key}:
        former = {name for column in key for name in column.names}
        if table.is_whole or former.issuperset(now.values()):
            raise JobError(another_key(table.name, key, now.values()))
        return key
    return tuple(replace(column, names=tuple(dict.fromkeys((now[column.number], *column.names)))) for column in key)


def _mark(table: CatalogTable, lsn: int) -> str:
    """The comment of an unclaimed copy: its table, and where the log continues."""
    return f"dsv2: table {table.oid} at {lsn_text(lsn)}"
