"""Clients that are not in use: making one costs a connection, so each process keeps some for the next micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from dsv2.connectors.kafka.connection import KafkaConnection

__all__ = ("Pool", "PooledClient")


class PooledClient(Protocol):
    """What a pool keeps."""

    def close(self) -> None:
        """Let go of the connections."""


ClientT = TypeVar("ClientT", bound=PooledClient)


class Pool(Generic[ClientT]):
    """At most one idle client for each connection. A client that is borrowed belongs to the borrower alone."""

    def __init__(self, make: Callable[[KafkaConnection], ClientT]) -> None:
        self._make = make
        self._idle: dict[str, ClientT] = {}

    def borrow(self, connection: KafkaConnection) -> ClientT:
        """A client that nobody else uses. Raises what making one raises."""
        client = self._idle.pop(_key(connection), None)
        return self._make(connection) if client is None else client

    def give_back(self, connection: KafkaConnection, client: ClientT) -> None:
        """Keep ``client``, which has not failed, for the next one who needs such."""
        if (other := self._idle.pop(_key(connection), None)) is not None:
            other.close()
        self._idle[_key(connection)] = client


def _key(connection: KafkaConnection) -> str:
    return repr(sorted(connection.consumer_config().items()))
