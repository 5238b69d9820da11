"""The log of a table: what a replication slot tells of its changes, the same however often it is asked."""

from __future__ import annotations

from collections.abc import Iterator

from dsv2.connectors.postgres.pgoutput import RelationChange, changes
from dsv2.connectors.postgres.replication_settings import ReplicationSettings
from dsv2.connectors.postgres.server import Connection, Server
from dsv2.connectors.postgres.split import lsn_text, parse_lsn
from dsv2.errors import JobError

__all__ = ("Log", "confirmed_lsn")

_AT_ONCE = 2048
_PEEK = (
    "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, %s, NULL, 'proto_version', '1', 'publication_names', %s)"
)
_END = "SELECT pg_current_wal_flush_lsn()::text"
_CONFIRMED = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s"
_ADVANCE = (
    "SELECT pg_replication_slot_advance(slot_name, %(lsn)s) FROM pg_replication_slots "
    "WHERE slot_name = %(slot)s AND confirmed_flush_lsn < %(lsn)s"
)


class Log:
    """What the slot of ``following`` keeps: all from where it was told to forget."""

    def __init__(self, server: Server, settings: ReplicationSettings) -> None:
        self._server = server
        self._settings = settings
        self._what = f"The changes of {settings.table} cannot be read"

    def end(self) -> int:
        """Where the log ends now, as far as it would survive a crash."""
        ((lsn,),) = self._server.ask(self._what, lambda connection: connection.execute(_END).fetchall())
        return parse_lsn(lsn)

    def has_changes(self, oid: int, start: int, stop: int) -> bool:
        """Whether there is any change of the table ``oid`` between the two."""
        return any(True for _ in self.changes(oid, start, stop))

    def changes(self, oid: int, start: int, stop: int) -> Iterator[RelationChange]:
        """The changes of the table ``oid`` in transactions that were committed from ``start`` up to ``stop``, in the
        order of the commits. Raises ``JobError``; also if the slot has forgotten some of them."""
        for change in changes(self._server.stream(self._what, lambda connection: self._messages(connection, stop))):
            if start <= change.commit_lsn < stop and oid in change.tables:
                if not isinstance(change, RelationChange):
                    raise JobError(
                        f"Table {self._settings.table} was truncated, of which the log tells no keys: nobody can say "
                        f"which rows are gone. Delete rows instead; to go on now, start anew, with a new checkpoint."
                    )
                yield change
        self._check_kept(start)

    def forget(self, lsn: int) -> None:
        """Tell the slot that what was committed before ``lsn`` is not wanted any more."""
        arguments = {"slot": self._settings.slot, "lsn": lsn_text(lsn)}
        self._server.ask(self._what, lambda connection: connection.execute(_ADVANCE, arguments))

    def _messages(self, connection: Connection, stop: int) -> Iterator[bytes]:
        with connection.transaction(), connection.cursor("dsv2_log", binary=True) as cursor:
            cursor.itersize = _AT_ONCE
            cursor.execute(_PEEK, [self._settings.slot, lsn_text(stop), self._settings.publication])
            yield from (data for (data,) in cursor)

    def _check_kept(self, start: int) -> None:
        # When all was read, so that nobody can have had the slot forget any of it meanwhile.
        confirmed = self._server.ask(self._what, lambda connection: confirmed_lsn(connection, self._settings.slot))
        if confirmed is None or confirmed > start:
            raise JobError(
                f"The replication slot {self._settings.slot} has forgotten changes of {self._settings.table} that "
                f"the job has not read: another job reads from it, or this one goes on from an older checkpoint. Give "
                f"each job a slot_name of its own; what is lost takes a new start, with a new checkpoint."
            )


def confirmed_lsn(connection: Connection, slot: str) -> int | None:
    """From where on ``slot`` keeps the log; None if there is no such slot."""
    found = connection.execute(_CONFIRMED, [slot]).fetchone()
    return None if found is None else parse_lsn(found[0])
