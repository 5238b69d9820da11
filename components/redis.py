"""A local Redis server, from the packages of the system. It keeps data in memory."""

from __future__ import annotations

import shutil
from pathlib import Path

from components.server import MissingComponentError, Server, free_ports

__all__ = ("RedisServer",)


class RedisServer:
    """A server with a password.

    Args:
        folder: The folder of its log.

    Attributes:
        url: Its URL.

    Raises:
        MissingComponentError: Redis is not installed.
    """

    PASSWORD = "s3cret/pass"

    def __init__(self, folder: Path) -> None:
        program = shutil.which("redis-server")
        if program is None:
            raise MissingComponentError("There is no Redis server here. Install it: apt-get install redis-server.")
        (port,) = free_ports(1)
        self.url = f"redis://:{self.PASSWORD.replace('/', '%2F')}@127.0.0.1:{port}"
        settings = {"port": f"{port}", "bind": "127.0.0.1", "save": "", "requirepass": self.PASSWORD}
        command = [program, *(part for name, value in settings.items() for part in (f"--{name}", value))]
        self._server = Server([*command, "--dir", str(folder)], port, folder / "redis.log")

    def start(self) -> None:
        """Start the server."""
        self._server.start()

    def stop(self) -> None:
        """Stop the server. Its data are lost."""
        self._server.stop()

    @property
    def log_tail(self) -> str:
        """The last lines of the log."""
        return self._server.log_tail
