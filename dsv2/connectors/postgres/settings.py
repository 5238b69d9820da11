"""The settings of ``PostgresSource`` and ``PostgresSink`` that their tasks share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dsv2.connectors.postgres.connection import PostgresConnection
from dsv2.errors import ConfigurationError

T = TypeVar("T")

LOG_BYTES_PER_BATCH = 64 << 20

_PART = r'"(?:[^"]|"")+"|[^".][^.]*'
_NAME = re.compile(rf"(?:({_PART})\.)?({_PART})")


def parse_table_name(name: str) -> list[str]:
    """Parse ``name`` or ``schema.name``. Either part may be quoted as in SQL; otherwise it is taken literally.

    Raises:
        ConfigurationError: It is neither.
    """
    parsed = _NAME.fullmatch(name)
    if parsed is None:
        raise ConfigurationError(
            f"{name!r} is not the name of a table. Write name or schema.name, in the spelling of the server's catalog. "
            f'Quote a part that contains a dot or begins with a quotation mark, as in SQL: schema."a.b".'
        )
    parts = [part for part in parsed.groups() if part is not None]
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]


@dataclass(frozen=True)
class ReplicationSettings:
    """The replication of a table.

    Attributes:
        connection: The connection.
        table: The table, as the user wrote it.
        slot: The name of the replication slot.
        own_publication: The publication of the user, if there is one.
        replaces_slot: Whether a first start drops an existing slot instead of raising an error.
        log_bytes_per_batch: The maximum bytes of the log in a micro-batch.
    """

    connection: PostgresConnection
    table: str
    slot: str
    own_publication: str | None = None
    replaces_slot: bool = False
    log_bytes_per_batch: int = LOG_BYTES_PER_BATCH

    @property
    def publication(self) -> str:
        """The name of the publication that contains the table."""
        return self.own_publication or f"dsv2_{self.slot}"

    @property
    def copy(self) -> str:
        """The name of the table that the snapshot is read from."""
        return f"dsv2_snapshot_{self.slot}"


@dataclass(frozen=True)
class TableWriter(Generic[T]):
    """Maps records to rows.

    Attributes:
        table: The table.
        columns: The columns to write.
        row: Returns the values of ``columns`` for a record.
        key: The columns by which a row replaces an existing one; empty: rows are inserted.
        deletes: Returns whether a record deletes the row with its key instead.
    """

    table: str
    columns: tuple[str, ...]
    row: Callable[[T], Sequence[Any]]
    key: tuple[str, ...]
    deletes: Callable[[T], bool] | None
