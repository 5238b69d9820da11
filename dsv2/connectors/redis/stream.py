"""The entries of a stream, and its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class RedisEntry(NamedTuple):
    """An entry of a stream.

    Attributes:
        stream: The key of the stream.
        id: The id, such as ``1526919030474-55``. Its first part is the time in ms at which the entry was added.
        fields: The fields, in order. Of several with the same name the last one counts.
    """

    stream: str
    id: str
    fields: Mapping[bytes, bytes]

    @property
    def timestamp(self) -> int:
        """The time in ms since the epoch."""
        return order_of(self.id)[0]


@dataclass(frozen=True)
class StreamSplit:
    """A stream, and how far it has been read.

    Attributes:
        stream: The key of the stream.
        position: The id of the last entry that was read.
        entries: The number of entries that were read.
        end: The id of the last entry that is read. Empty: there is no end.
    """

    stream: str
    position: str = "0-0"
    entries: int = 0
    end: str = ""

    @property
    def split_id(self) -> str:
        """The key of the stream."""
        return self.stream


def order_of(entry_id: str) -> tuple[int, int]:
    """Return a value by which ids are ordered."""
    time, _, number = entry_id.partition("-")
    return int(time), int(number or 0)
