"""The changes of a table, read repeatably from a replication slot."""

from __future__ import annotations

from collections.abc import Iterator

from dsv2.connectors.postgres.pgoutput import RelationChange, changes
from dsv2.connectors.postgres.server import Connection, Server
from dsv2.connectors.postgres.settings import ReplicationSettings
from dsv2.connectors.postgres.split import lsn_text, parse_lsn
from dsv2.errors import JobError

_MESSAGES_AT_ONCE = 2048
_PEEK = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes($1, $2, NULL, 'proto_version', '1', 'publication_names', $3)"
)
_END = "SELECT pg_current_wal_flush_lsn()::text"
_CONFIRMED = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1"
_ADVANCE = (
    "SELECT pg_replication_slot_advance(slot_name, $2) FROM pg_replication_slots "
    "WHERE slot_name = $1 AND confirmed_flush_lsn < $2"
)


class Log:
    """The changes that the replication slot retains: all since the position that was last confirmed."""

    def __init__(self, server: Server, settings: ReplicationSettings) -> None:
        self._server = server
        self._settings = settings
        self._what = f"Cannot read the changes of {settings.table}"

    def end(self) -> int:
        """Return the current end of the flushed log."""
        ((lsn,),) = self._server.run(self._what, lambda connection: connection.execute(_END).fetchall())
        return parse_lsn(lsn)

    def has_changes(self, oid: int, start: int, stop: int) -> bool:
        """Return whether a transaction committed from ``start`` up to ``stop`` changed the table ``oid``."""
        return any(True for _ in self.changes(oid, start, stop))

    def changes(self, oid: int, start: int, stop: int) -> Iterator[RelationChange]:
        """Yield the changes of a table in the order of their commits.

        Args:
            oid: The OID of the table.
            start: The LSN of the first commit.
            stop: The LSN before which the last transaction was committed.

        Raises:
            JobError: The slot no longer retains all of them, the table was truncated, or the server does not answer.
        """
        for change in changes(self._server.stream(self._what, lambda connection: self._messages(connection, stop))):
            if start <= change.commit_lsn < stop and oid in change.tables:
                if not isinstance(change, RelationChange):
                    raise JobError(
                        f"Table {self._settings.table} was truncated. The log does not contain the keys of the rows "
                        f"that this removes. To continue, start the job with a new checkpoint. In future, delete rows "
                        f"instead."
                    )
                yield change
        self._check_kept(start)

    def forget(self, lsn: int) -> None:
        """Confirm to the slot that transactions committed before ``lsn`` are no longer needed."""
        arguments = [self._settings.slot, lsn_text(lsn)]
        self._server.run(self._what, lambda connection: connection.execute(_ADVANCE, arguments))

    def _messages(self, connection: Connection, stop: int) -> Iterator[bytes]:
        with connection.transaction(), connection.cursor("dsv2_log", binary=True) as cursor:
            cursor.itersize = _MESSAGES_AT_ONCE
            cursor.execute(_PEEK, [self._settings.slot, lsn_text(stop), self._settings.publication])
            yield from (data for (data,) in cursor)

    def _check_kept(self, start: int) -> None:
        # Checked after reading, so that the slot cannot have been advanced by another client in the meantime.
        confirmed = self._server.run(self._what, lambda connection: confirmed_lsn(connection, self._settings.slot))
        if confirmed is None or confirmed > start:
            raise JobError(
                f"The replication slot {self._settings.slot} no longer retains changes of {self._settings.table} that "
                f"the job has not read. Another job uses the slot, or this job was restored from an older checkpoint. "
                f"Give each job its own slot_name. To recover, start the job with a new checkpoint."
            )


def confirmed_lsn(connection: Connection, slot: str) -> int | None:
    """Return the LSN from which ``slot`` retains the log; None if the slot does not exist."""
    found = connection.execute(_CONFIRMED, [slot]).fetchone()
    return None if found is None else parse_lsn(found[0])
