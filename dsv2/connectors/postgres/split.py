"""The splits of ``PostgresSource``: ranges of the snapshot, and the log of changes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("LOG", "PostgresSplit", "lsn_text", "parse_lsn")

LOG = "log"


@dataclass(frozen=True)
class PostgresSplit:
    """A range of the snapshot, or the log.

    Attributes:
        name: The id of the split.
        table: The OID of the table.
        position: Snapshot: the number of the last row read. Log: the LSN from which commits are not read yet.
        stop: Snapshot: the number of the last row of the split. Log: None.
    """

    name: str
    table: int
    position: int
    stop: int | None = None

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
