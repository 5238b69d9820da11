"""The settings with which a ``PostgresSource`` replicates its table."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.connectors.postgres.connection import PostgresConnection

__all__ = ("ReplicationSettings",)


@dataclass(frozen=True)
class ReplicationSettings:
    """A table, the name of its replication slot, and the publication of the user, if there is one."""

    connection: PostgresConnection
    table: str
    slot: str
    own_publication: str | None = None

    @property
    def publication(self) -> str:
        """The name of the publication that contains the table."""
        return self.own_publication or f"dsv2_{self.slot}"

    @property
    def copy(self) -> str:
        """The name of the table that the snapshot is read from."""
        return f"dsv2_snapshot_{self.slot}"
