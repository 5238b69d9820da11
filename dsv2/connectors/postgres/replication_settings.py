"""What a source is told of the table that it follows."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2.connectors.postgres.connection import PostgresConnection

__all__ = ("ReplicationSettings",)


@dataclass(frozen=True)
class ReplicationSettings:
    """``table``, followed by the replication slot ``slot``. ``own_publication``: the user's, if there is one."""

    connection: PostgresConnection
    table: str
    slot: str
    own_publication: str | None = None

    @property
    def publication(self) -> str:
        """The name of the publication that has the table."""
        return self.own_publication or f"dsv2_{self.slot}"

    @property
    def copy(self) -> str:
        """The name of the table that the snapshot is read from."""
        return f"dsv2_snapshot_{self.slot}"
