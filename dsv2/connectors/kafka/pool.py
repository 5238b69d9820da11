"""Clients that are not in use: making one costs a connection, so each process keeps some for the next micro-batch."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from dsv2.connectors.kafka.connection import KafkaConnection

__all__ = ("Pool", "PooledClient")

_LIMIT = 16


class PooledClient(Protocol):
    """What a pool keeps."""

    def close(self) -> None:
        """Let go of the connections."""


ClientT = TypeVar("ClientT", bound=PooledClient)


class Pool(Generic[ClientT]):
    """At most one idle client for each connection and purpose, and some of them in all: those that were used last."""

    def __init__(self) -> None:
        self._idle: dict[tuple[str, str], ClientT] = {}

    def take(self, connection: KafkaConnection, purpose: str = "") -> ClientT | None:
        """A client that was given back, which belongs to the caller alone from here on; None if there is none."""
        return self._idle.pop((_key(connection), purpose), None)

    def give_back(self, client: ClientT, connection: KafkaConnection, purpose: str = "") -> None:
        """Keep ``client``, which has not failed, for the next one who needs such."""
        key = _key(connection), purpose
        if (other := self._idle.pop(key, None)) is not None:
            other.close()
        self._idle[key] = client
        while len(self._idle) > _LIMIT:
            self._idle.pop(next(iter(self._idle))).close()


def _key(connection: KafkaConnection) -> str:
    return repr(sorted(connection.consumer_config().items()))
