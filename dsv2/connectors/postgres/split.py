"""The splits of ``PostgresSource``: ranges of the snapshot, and the log of changes."""

from __future__ import annotations

from dataclasses import dataclass

LOG = "log"


@dataclass(frozen=True)
class KeyColumn:
    """A column of the primary key with which the job began.

    Attributes:
        number: The number of the column in the server's catalog, which survives renaming.
        type: The OID of its type when the job began; of a domain, that of its base type.
        names: The names that it has had, the newest first.
    """

    number: int
    type: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class PostgresSplit:
    """A range of the snapshot, or the log.

    Attributes:
        name: The id of the split.
        table: The OID of the table.
        position: Snapshot: the number of the last row read. Log: the LSN from which commits are not read yet.
        stop: Snapshot: the number of the last row of the split. Log: None.
        key: The primary key with which the job began, which identifies the rows for as long as it runs.
    """

    name: str
    table: int
    position: int
    stop: int | None = None
    key: tuple[KeyColumn, ...] = ()

    @property
    def split_id(self) -> str:
        """The name of the split."""
        return self.name


def parse_lsn(text: str) -> int:
    """Parse an LSN in the server's text format."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    """Format an LSN in the server's text format."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
