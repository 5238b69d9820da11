"""The HTTP server of a dashboard: uvicorn, without effects on the rest of the program."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from dsv2.jobs.dashboard_settings import Dashboard
from dsv2.views.dashboard.app import application
from dsv2.views.dashboard.jobs import Board

_HEAD_SECONDS = 10.0  # in which the head of a request must arrive
_MOST_WAITING = 256  # connections on which it has not arrived yet
_MOST_WAITING_OF_CLIENT = 128  # more than asyncio accepts before it reads any of them


class _Connection(H11Protocol):
    """A connection that cannot keep others from being answered by sending nothing.

    uvicorn limits the time between two requests only, and its ``limit_concurrency`` counts silent connections. Here a
    silent one is closed after a while, or when the same client opens more of them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Addresses of requests may contain the token. ``access_log=False`` would be for the whole process.
        self.access_log = False
        self._waits_since = 0.0
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()
        waiting = [one for one in self.connections if isinstance(one, _Connection) and one._limit is not None]
        waiting.sort(key=lambda one: one._waits_since)
        own = [one for one in waiting if one._host == self._host]
        for oldest in {*own[:-_MOST_WAITING_OF_CLIENT], *waiting[:-_MOST_WAITING]}:
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        self._wait_for_head()
        super().on_response_complete()
        if not self.cycle.response_complete:  # the next request had arrived already
            self._stop_waiting()

    @property
    def _host(self) -> str:
        return "" if self.client is None else self.client[0]

    def _wait_for_head(self) -> None:
        self._stop_waiting()
        self._waits_since = self.loop.time()
        self._limit = self.loop.call_later(_HEAD_SECONDS, self.timeout_keep_alive_handler)

    def _stop_waiting(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None


def http_server(board: Board, settings: Dashboard, port: int) -> Server:
    """Return a server that is not running yet.

    Args:
        board: The jobs.
        settings: The settings, with the token if one is required.
        port: The port of its socket.
    """
    config = Config(
        application(board, settings, port),
        http=_Connection,
        log_config=None,  # that of the program
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_graceful_shutdown=1,
    )
    return Server(config)
