"""The HTTP server of a dashboard: uvicorn, without effects on the rest of the program."""

from __future__ import annotations

from typing import Any

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from dsv2.dashboard.app import application
from dsv2.dashboard.jobs import Board
from dsv2.dashboard.settings import Dashboard

__all__ = ("http_server",)

_MOST_CONNECTIONS = 64


class _WithoutAccessLog(H11Protocol):
    """Logs no requests, whose addresses may contain the token. ``access_log=False`` would be for the whole process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False


def http_server(board: Board, settings: Dashboard, port: int) -> Server:
    """Return a server that is not running yet.

    Args:
        board: The jobs.
        settings: The settings, with the token if one is required.
        port: The port of its socket.
    """
    config = Config(
        application(board, settings, port),
        http=_WithoutAccessLog,
        log_config=None,  # that of the program
        lifespan="off",
        server_header=False,
        proxy_headers=False,
        ws="none",
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=1,
    )
    return Server(config)
