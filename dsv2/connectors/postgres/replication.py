"""What is made in the database for a table that is followed: a replication slot, a publication, and a copy.

The server makes the copy of the table itself, in the snapshot that the slot begins with. So the copy and the log fit
together exactly, and both give the same however often they are read: the copy does not change, and a slot keeps what
it has not been told to forget. (To read the table itself would not do: a micro-batch that is repeated would see other
rows.) The price is room for the copy until it has been read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from psycopg import sql

from dsv2.connectors.postgres.log import Log, confirmed_lsn
from dsv2.connectors.postgres.replication_settings import ReplicationSettings
from dsv2.connectors.postgres.server import Connection, Server, named, opened, statement
from dsv2.connectors.postgres.split import lsn_text, parse_lsn
from dsv2.connectors.postgres.table import FollowedTable, table_named, table_numbered
from dsv2.errors import JobError

__all__ = ("ROW_NUMBER", "Replication", "Start")

T = TypeVar("T")

ROW_NUMBER = "dsv2_row"
"""The first column of the copy: numbers from 1, in the order of the primary key."""

_PUBLISHED = """
SELECT pubinsert AND pubupdate AND pubdelete AND pubtruncate AND NOT EXISTS (
    SELECT FROM pg_publication_rel AS part WHERE prpubid = pg_publication.oid AND prrelid = %s
    AND (to_jsonb(part) ->> 'prqual' IS NOT NULL OR to_jsonb(part) ->> 'prattrs' IS NOT NULL)
)
FROM pg_publication WHERE pubname = %s AND EXISTS (
    SELECT FROM pg_publication_tables AS part
    WHERE part.pubname = pg_publication.pubname AND schemaname = %s AND tablename = %s
)
"""
_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
_COPIES = """
SELECT nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE relname = %s AND relkind = 'r'
"""
_DROP_TABLE = "DROP TABLE {}"
_DROP_SLOT = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s"


@dataclass(frozen=True)
class Start:
    """What replication begins with: a copy of so many ``rows`` of ``table``, and changes from ``lsn`` on."""

    table: int
    rows: int
    lsn: int


class Replication:
    """Lives on the driver."""

    def __init__(self, settings: ReplicationSettings) -> None:
        self._settings = settings
        self._server = Server(settings.connection)
        self.log = Log(self._server, settings)

    def begin(self, *, replace: bool) -> Start:
        """Make all of it. Raises ``JobError`` if there is a slot of this name, unless ``replace`` says to drop it.

        What was made by a start that came to nothing, before anybody called ``claim``, is taken as it is.
        """
        return self._ask("followed", lambda connection: self._begin(connection, replace=replace))

    def check(self, oid: int) -> None:
        """Raise ``JobError`` unless the table ``oid`` is still the one to follow, by slot and publication."""
        self._ask("followed", lambda connection: self._check(connection, oid))

    def claim(self) -> None:
        """Have no other job take what was made."""
        self._ask("claimed", lambda connection: self._for_copies(connection, "COMMENT ON TABLE {} IS NULL"))

    def drop_copy(self) -> None:
        """Drop the copy, if it is there."""
        self._ask("let go", lambda connection: self._for_copies(connection, _DROP_TABLE))

    def drop(self) -> None:
        """Drop all of it, but for a publication of the user's."""
        self._ask("let go", self._drop)

    def close(self) -> None:
        """Let go of the connection."""
        self._server.close()

    def _ask(self, what: str, call: Callable[[Connection], T]) -> T:
        return self._server.ask(f"Table {self._settings.table} cannot be {what}", call)

    def _begin(self, connection: Connection, *, replace: bool) -> Start:
        self._check_level(connection)
        table = table_named(connection, self._settings.table)
        confirmed = confirmed_lsn(connection, self._settings.slot)
        if confirmed is not None and not replace:
            return self._taken_over(connection, table, confirmed)
        connection.execute(_DROP_SLOT, [self._settings.slot])
        self._for_copies(connection, _DROP_TABLE)
        self._publish(connection, table)
        return self._copy_at_slot(connection, table)

    def _check_level(self, connection: Connection) -> None:
        ((level,),) = connection.execute("SHOW wal_level").fetchall()
        if level != "logical":
            raise JobError(
                f"The server does not log what is needed to follow a table: wal_level is {level}. Set it to logical in "
                f"postgresql.conf, and start the server again ({self._server!r})."
            )

    def _taken_over(self, connection: Connection, table: FollowedTable, lsn: int) -> Start:
        copy = self._copy_of(table)
        query = "SELECT obj_description(to_regclass(%s), 'pg_class')"
        if connection.execute(query, [copy.as_string()]).fetchone() != (_mark(table, lsn),):
            slot = self._settings.slot
            raise JobError(
                f"There is a replication slot {slot} already. If another job uses it, choose another slot_name. If it "
                f"was left by this one, which now starts anew, say if_slot_exists='replace'."
            )
        count = statement("SELECT coalesce(max({}), 0) FROM {}", sql.Identifier(ROW_NUMBER), copy)
        ((rows,),) = connection.execute(count).fetchall()
        return Start(table.oid, rows, lsn)

    def _copy_of(self, table: FollowedTable) -> sql.Identifier:
        return sql.Identifier(table.schema, self._settings.copy)

    def _publish(self, connection: Connection, table: FollowedTable) -> None:
        if self._is_published(connection, table):
            return
        publication = self._settings.publication
        if self._settings.own_publication is not None:
            raise JobError(
                f"The publication {publication} does not have all of table {table.schema}.{table.name}: it has to be "
                f"in it with all columns and rows, and all kinds of changes."
            )
        name = sql.Identifier(publication)
        connection.execute(statement("DROP PUBLICATION IF EXISTS {}", name))
        connection.execute(statement("CREATE PUBLICATION {} FOR TABLE ONLY {}", name, table.identifier))

    def _is_published(self, connection: Connection, table: FollowedTable) -> bool:
        found = connection.execute(_PUBLISHED, [table.oid, self._settings.publication, table.schema, table.name])
        return found.fetchone() == (True,)

    def _check(self, connection: Connection, oid: int) -> None:
        if confirmed_lsn(connection, self._settings.slot) is None:
            raise JobError(
                f"The replication slot {self._settings.slot} is gone, and with it what changed in "
                f"{self._settings.table} since. Start anew, with a new checkpoint."
            )
        table = table_numbered(connection, oid, self._settings.table)
        query = "SELECT to_regclass(%s)::oid"
        if connection.execute(query, [named(self._settings.table).as_string()]).fetchone() != (oid,):
            raise JobError(
                f"The job began with table {table.schema}.{table.name}, and {self._settings.table} is another one. "
                f"To follow that, start anew, with a new checkpoint."
            )
        if not self._is_published(connection, table):
            raise JobError(
                f"The publication {self._settings.publication} has not all of table {table.schema}.{table.name} any "
                f"more, so changes of it are lost. Start anew, with a new checkpoint."
            )

    def _copy_at_slot(self, connection: Connection, table: FollowedTable) -> Start:
        # The slot is kept only when the copy is there: until then it goes with its connection.
        slot = self._settings.slot
        with opened(self._settings.connection, replication="database") as exporting:
            temporary = f"{slot}_{exporting.info.backend_pid}"
            create = statement(
                "CREATE_REPLICATION_SLOT {} TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT", sql.Identifier(temporary)
            )
            ((_, lsn, snapshot, _),) = exporting.execute(create).fetchall()
            start = Start(table.oid, self._copy(connection, table, snapshot, lsn), parse_lsn(lsn))
            keep = "SELECT pg_copy_logical_replication_slot({}, {}, false)"
            exporting.execute(statement(keep, sql.Literal(temporary), sql.Literal(slot)))
        return start

    def _copy(self, connection: Connection, table: FollowedTable, snapshot: str, lsn: str) -> int:
        copy, number = self._copy_of(table), sql.Identifier(ROW_NUMBER)
        columns = [sql.Identifier(name) for (name,) in connection.execute(_COLUMNS, [table.oid])]
        select = statement(
            "SELECT row_number() OVER (ORDER BY {}) AS {}, {} FROM ONLY {}",
            sql.SQL(", ").join(map(sql.Identifier, table.key)),
            number,
            sql.SQL(", ").join(columns),
            table.identifier,
        )
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute(statement("SET TRANSACTION SNAPSHOT {}", sql.Literal(snapshot)))
            rows = connection.execute(statement("CREATE TABLE {} AS {}", copy, select)).rowcount
            connection.execute(statement("ALTER TABLE {} ADD PRIMARY KEY ({})", copy, number))
            connection.execute(statement("COMMENT ON TABLE {} IS {}", copy, sql.Literal(_mark(table, parse_lsn(lsn)))))
        return rows

    def _for_copies(self, connection: Connection, text: str) -> None:
        """Run a statement with the name of the copy, if there is one (or of several, in different schemas)."""
        for schema, name in connection.execute(_COPIES, [self._settings.copy]).fetchall():
            connection.execute(statement(text, sql.Identifier(schema, name)))

    def _drop(self, connection: Connection) -> None:
        connection.execute(_DROP_SLOT, [self._settings.slot])
        self._for_copies(connection, _DROP_TABLE)
        if self._settings.own_publication is None:
            connection.execute(statement("DROP PUBLICATION IF EXISTS {}", sql.Identifier(self._settings.publication)))


def _mark(table: FollowedTable, lsn: int) -> str:
    """What a copy says of itself: of which table it is, and where the log goes on."""
    return f"dsv2: table {table.oid} at {lsn_text(lsn)}"
