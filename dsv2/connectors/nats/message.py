"""The messages of a stream, and its position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class NatsMessage(NamedTuple):
    """A message of a stream.

    Attributes:
        stream: The name of the stream.
        sequence: The number of the message in its stream, from 1.
        subject: The subject.
        data: The payload.
        headers: The headers.
        timestamp: The time in ms since the epoch at which the server stored the message.
    """

    stream: str
    sequence: int
    subject: str
    data: bytes
    headers: Mapping[str, str]
    timestamp: int


@dataclass(frozen=True)
class NatsSplit:
    """A stream, and how far it has been read.

    Attributes:
        stream: The name of the stream.
        created: The time at which the stream was created, in ISO 8601.
        position: The number of the last message that was read.
        end: The number of the last message that is read. None: there is no end.
    """

    stream: str
    created: str
    position: int
    end: int | None = None

    @property
    def split_id(self) -> str:
        """The name of the stream."""
        return self.stream
