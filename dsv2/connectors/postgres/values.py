"""Conversion of the text values of the log to the Python values that a query of the table returns."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from psycopg import pq
from psycopg.adapt import Transformer

from dsv2.connectors.postgres.pgoutput import ABSENT, Relation, RelationChange, TextRow
from dsv2.connectors.postgres.server import Server
from dsv2.connectors.postgres.table import FollowedTable
from dsv2.errors import JobError

__all__ = ("LogValues",)

_DOMAINS = "SELECT oid, typbasetype FROM pg_type WHERE typtype = 'd'"


class LogValues:
    """Converts the rows of ``table``."""

    def __init__(self, server: Server, table: FollowedTable) -> None:
        self._server = server
        self._table = table
        self._transformer = Transformer()

    def old_key(self, change: RelationChange) -> tuple[Any, ...] | None:
        """Return the primary key before the change; None if the server omits it because it did not change."""
        if change.old is None:
            return None
        sent = dict(zip((column.name for column in change.relation.columns), change.old, strict=True))
        if any(sent.get(name, ABSENT) is ABSENT for name in self._table.key):
            raise JobError(
                f"The log does not contain the primary key ({', '.join(self._table.key)}) of a row of "
                f"{self._table.name} that was changed or deleted. The primary key of the table may have been changed "
                f"since. Start the job with a new checkpoint."
            )
        values = self._loaded(change.relation, change.old)
        return tuple(values[name] for name in self._table.key)

    def new_row(self, change: RelationChange) -> dict[str, Any]:
        """Return the row after the change, by column name."""
        assert change.new is not None
        new = change.new
        if change.old is not None:
            new = tuple(old if value is ABSENT else value for old, value in zip(change.old, new, strict=True))
        if ABSENT in new:
            columns = zip(change.relation.columns, new, strict=True)
            raise JobError(
                f"The server does not log large values that an update does not change, here of the columns "
                f"{', '.join(column.name for column, value in columns if value is ABSENT)}. Run ALTER TABLE "
                f"{self._table.schema}.{self._table.name} REPLICA IDENTITY FULL. This does not affect changes that are "
                f"already in the log, so start the job with a new checkpoint."
            )
        return self._loaded(change.relation, new)

    def _loaded(self, relation: Relation, row: TextRow) -> dict[str, Any]:
        return {
            column.name: self._load(column.type, value) if isinstance(value, bytes) else None
            for column, value in zip(relation.columns, row, strict=True)
        }

    def _load(self, kind: int, value: bytes) -> Any:
        while kind in self._domains:
            kind = self._domains[kind]
        return self._transformer.get_loader(kind, pq.Format.TEXT).load(value)

    @cached_property
    def _domains(self) -> Mapping[int, int]:
        """The base types of domains. Queries return values of the base type."""
        found = self._server.run(
            f"Cannot look up the types of {self._table.name}",
            lambda connection: connection.execute(_DOMAINS).fetchall(),
        )
        return dict(found)
