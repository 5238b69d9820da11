"""The parts of a table that are read: pieces of its snapshot, then the log of its changes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("LOG", "PostgresSplit", "lsn_text", "parse_lsn")

LOG = "log"


@dataclass(frozen=True)
class PostgresSplit:
    """A piece of the snapshot, or the log, of the table that the server knows by the number ``table``.

    Of the snapshot: rows ``position`` + 1 to ``stop``, by their numbers. Of the log: transactions that were committed
    at or behind ``position``, which is a place in the server's write-ahead log (an LSN); ``stop`` is None.
    """

    name: str
    table: int
    position: int
    stop: int | None = None

    @property
    def split_id(self) -> str:
        """The name."""
        return self.name


def parse_lsn(text: str) -> int:
    """A place in the log, as the server writes it."""
    high, low = text.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    """A place in the log, as the server reads it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
