"""Values of what the log tells as text: the same as a query of the table gives."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from psycopg import pq
from psycopg.adapt import Transformer

from dsv2.connectors.postgres.pgoutput import UNTOLD, Relation, RelationChange, TextRow
from dsv2.connectors.postgres.server import Server
from dsv2.connectors.postgres.table import FollowedTable
from dsv2.errors import JobError

__all__ = ("LogValues",)

_DOMAINS = "SELECT oid, typbasetype FROM pg_type WHERE typtype = 'd'"


class LogValues:
    """Reads the rows of ``table``."""

    def __init__(self, server: Server, table: FollowedTable) -> None:
        self._server = server
        self._table = table
        self._transformer = Transformer()

    def old_key(self, change: RelationChange) -> tuple[Any, ...] | None:
        """The primary key of the row before the change; None if that is not told, because it stays the same."""
        if change.old is None:
            return None
        told = dict(zip((column.name for column in change.relation.columns), change.old, strict=True))
        if any(told.get(name, UNTOLD) is UNTOLD for name in self._table.key):
            raise JobError(
                f"The log does not tell the primary key ({', '.join(self._table.key)}) of a row of {self._table.name} "
                f"that was changed or deleted. Was it another one then? Start anew, with a new checkpoint."
            )
        values = self._loaded(change.relation, change.old)
        return tuple(values[name] for name in self._table.key)

    def new_row(self, change: RelationChange) -> dict[str, Any]:
        """The row behind the change, by the names of its columns."""
        assert change.new is not None
        new = change.new
        if change.old is not None:
            new = tuple(old if value is UNTOLD else value for old, value in zip(change.old, new, strict=True))
        if UNTOLD in new:
            columns = zip(change.relation.columns, new, strict=True)
            raise JobError(
                f"The server does not tell large values that an update leaves alone, here of "
                f"{', '.join(column.name for column, value in columns if value is UNTOLD)}. Have it do so: ALTER TABLE "
                f"{self._table.schema}.{self._table.name} REPLICA IDENTITY FULL. What is in the log by now stays as it "
                f"is: start anew, with a new checkpoint."
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
        """What types are made of that only restrict another one: a query gives values of that."""
        found = self._server.ask(
            f"The types of {self._table.name} cannot be looked up",
            lambda connection: connection.execute(_DOMAINS).fetchall(),
        )
        return dict(found)
