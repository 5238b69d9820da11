"""Servers that are killed in tests, and restarted when a client has noticed it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Protocol

import pytest

from tests.support import wait_until


class RestartedServer(Protocol):
    """A server process."""

    def start(self) -> None:
        """Start the server."""

    def kill(self) -> None:
        """Kill the server."""


@contextmanager
def restarted_after_a_retry(server: RestartedServer, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Kill a server, and restart it when the log of a connector says that it retries, or at the end of the block."""
    before, ended = len(caplog.records), Event()

    def restart() -> None:
        wait_until(lambda: ended.is_set() or any("Retrying." in one.getMessage() for one in caplog.records[before:]))
        server.start()

    server.kill()
    late = Thread(target=restart)
    late.start()
    try:
        yield
    finally:
        ended.set()
        late.join()
