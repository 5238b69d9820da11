"""The server of a dashboard, in a thread of this process."""

from __future__ import annotations

import atexit
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from dsv2.errors import ConfigurationError
from dsv2.jobs.dashboard_settings import Dashboard
from dsv2.views.dashboard.jobs import Board

if TYPE_CHECKING:
    from dsv2.views.metrics.served import ServedMetrics

_EXIT_SECONDS = 2.0


class DashboardServer:
    """A server that is already listening, and answers until ``close`` or the end of the process.

    Args:
        settings: The settings.

    Raises:
        ConfigurationError: The extra is not installed, or the address is not available.
    """

    def __init__(self, settings: Dashboard) -> None:
        try:
            from dsv2.views.dashboard.http import http_server
        except ImportError as error:
            raise ConfigurationError(
                f"A dashboard needs Starlette and uvicorn ({error}). Install them with: pip install 'dsv2[dashboard]'"
            ) from error
        self.board = Board(_new_metrics())
        self._socket = _listening(settings)
        port = self._socket.getsockname()[1]
        self.settings = replace(settings.with_token(), port=port)
        self._server = http_server(self.board, self.settings, port)
        self._thread = threading.Thread(target=self._run, name="dsv2-dashboard", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        host = self.settings.host
        shown = {"0.0.0.0": socket.gethostname(), "::": socket.gethostname()}.get(host, host)
        if ":" in shown:
            shown = f"[{shown}]"
        token = "" if self.settings.token is None else f"?token={self.settings.token}"
        return f"http://{shown}:{self.settings.port}/{token}"

    def join(self) -> None:
        """Wait until the server ends."""
        while self._thread.is_alive():
            self._thread.join(1.0)  # with a limit, so that Ctrl-C interrupts it

    def close(self) -> None:
        """Stop the server."""
        atexit.unregister(self.close)
        self.board.is_closing = self._server.should_exit = True
        self._thread.join(_EXIT_SECONDS)
        self._socket.close()
        with _lock:
            for settings in [settings for settings, server in _servers.items() if server is self]:
                del _servers[settings]


_servers: dict[Dashboard, DashboardServer] = {}
_lock = threading.Lock()


def server_of(settings: Dashboard) -> tuple[DashboardServer, bool]:
    """Return the server of this process with these settings, and whether it is new. Jobs of a process share it.

    Raises:
        ConfigurationError: The extra is not installed, or the address is not available.
    """
    with _lock:
        if settings in _servers:
            return _servers[settings], False
        if settings.port and any(other.port == settings.port for other in _servers):
            raise ConfigurationError(
                f"This program has a dashboard at port {settings.port} already, with other settings. Pass the same "
                f"Dashboard to all jobs, or choose another port."
            )
        _servers[settings] = DashboardServer(settings)
        return _servers[settings], True


def _new_metrics() -> ServedMetrics | None:
    try:
        from dsv2.views.metrics.served import ServedMetrics
    except ConfigurationError:  # the library is not installed
        return None
    return ServedMetrics()


def _listening(settings: Dashboard) -> socket.socket:
    host, port = settings.host, settings.port
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        both = host == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address[:2], family=family, dualstack_ipv6=both)
    except OSError as error:
        raise ConfigurationError(
            f"The dashboard cannot listen at port {port} of {host}: {error.strerror or error}. Choose another port, or "
            f"0 for a free one."
        ) from error
