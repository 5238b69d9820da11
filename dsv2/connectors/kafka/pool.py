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


_MOST_IDLE = 8  # the readers of a process take turns, each with its own
ClientT = TypeVar("ClientT", bound=PooledClient)


class Pool(Generic[ClientT]):
    """Keeps the idle clients of a connection, at most eight. A borrowed client is used by its borrower only."""

    def __init__(self, make: Callable[[KafkaConnection], ClientT]) -> None:
        self._make = make
        self._idle: dict[str, list[ClientT]] = {}
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
        try:
            return self._idle[connection.key].pop()
        except LookupError:
            return self._make(connection)

    def give_back(self, connection: KafkaConnection, client: ClientT) -> None:
        """Keep ``client``, which has not failed, for the next borrower."""
        idle = self._idle.setdefault(connection.key, [])
        if len(idle) < _MOST_IDLE:
            idle.append(client)
        else:
            client.close()

    def close_idle(self) -> None:
        """Close all idle clients."""
        for idle in [*self._idle.values()]:
            while idle:
                with contextlib.suppress(IndexError):  # another thread borrowed the last one
                    idle.pop().close()
