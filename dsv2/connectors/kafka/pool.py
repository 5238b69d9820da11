"""Clients that are not in use: making one costs a connection, so each process keeps some for the next micro-batch.

A client has threads of its own in librdkafka. They are not there any more in a forked process, where it crashes whoever
uses or frees it, and they must not call into an interpreter that is being torn down. So idle clients are closed before
the process forks, and when it exits.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        atexit.register(self.close_idle)
        os.register_at_fork(before=self.close_idle)

    @contextmanager
    def lent(self, connection: KafkaConnection) -> Iterator[ClientT]:
        """A client for the length of a block; it is closed if the block raises. Raises what making one raises."""
        client = self.borrow(connection)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self.give_back(connection, client)

    def borrow(self, connection: KafkaConnection) -> ClientT:
        """A client that nobody else uses. Raises what making one raises."""
        client = self._idle.pop(_key(connection), None)
        return self._make(connection) if client is None else client

    def give_back(self, connection: KafkaConnection, client: ClientT) -> None:
        """Keep ``client``, which has not failed, for the next one who needs such."""
        if (other := self._idle.pop(_key(connection), None)) is not None:
            other.close()
        self._idle[_key(connection)] = client

    def close_idle(self) -> None:
        """Close the clients that are not in use."""
        while self._idle:
            with contextlib.suppress(KeyError):  # another thread has borrowed the last one
                self._idle.popitem()[1].close()


def _key(connection: KafkaConnection) -> str:
    return repr(sorted(connection.consumer_config().items()))
