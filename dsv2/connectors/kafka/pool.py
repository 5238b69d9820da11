"""A pool of idle clients, so that a process does not reconnect for every micro-batch.

A client has threads in librdkafka. A forked process lacks these threads and crashes if it uses or frees the client. The
threads must also not call into an interpreter that is shutting down. So idle clients are closed before the process
forks and when it exits.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from dsv2.connectors.kafka.connection import KafkaConnection


class PooledClient(Protocol):
    """A client that a pool can keep."""

    def close(self) -> None:
        """Close the connections."""


ClientT = TypeVar("ClientT", bound=PooledClient)


class Pool(Generic[ClientT]):
    """Keeps at most one idle client per connection. A borrowed client is used by its borrower only."""

    def __init__(self, make: Callable[[KafkaConnection], ClientT]) -> None:
        self._make = make
        self._idle: dict[str, ClientT] = {}
        atexit.register(self.close_idle)
        os.register_at_fork(before=self.close_idle)

    @contextmanager
    def lent(self, connection: KafkaConnection) -> Iterator[ClientT]:
        """Lend a client to a ``with`` block. It is closed if the block raises."""
        client = self.borrow(connection)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self.give_back(connection, client)

    def borrow(self, connection: KafkaConnection) -> ClientT:
        """Return an idle client, or create one. Propagates errors of its creation."""
        client = self._idle.pop(connection.key, None)
        return self._make(connection) if client is None else client

    def give_back(self, connection: KafkaConnection, client: ClientT) -> None:
        """Keep ``client``, which has not failed, for the next borrower."""
        if (other := self._idle.pop(connection.key, None)) is not None:
            other.close()
        self._idle[connection.key] = client

    def close_idle(self) -> None:
        """Close all idle clients."""
        while self._idle:
            with contextlib.suppress(KeyError):  # another thread borrowed the last one
                self._idle.popitem()[1].close()
