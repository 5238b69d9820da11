"""A local NATS server with JetStream, from the packages of the system."""

from __future__ import annotations

import shutil
from pathlib import Path

from components.certificate import make_certificate
from components.server import MissingComponentError, Server, free_ports

__all__ = ("NatsServer",)


class NatsServer:
    """A server with TLS and a password.

    Args:
        folder: The folder of its data and its log.

    Attributes:
        url: Its URL.
        certificate: The certificate that clients must trust.

    Raises:
        MissingComponentError: NATS is not installed.
    """

    USER = "user"
    PASSWORD = "s3cret/nats"

    def __init__(self, folder: Path) -> None:
        program = shutil.which("nats-server")
        if program is None:
            raise MissingComponentError("There is no NATS server here. Install it: apt-get install nats-server.")
        (port,) = free_ports(1)
        self.url = f"tls://127.0.0.1:{port}"
        self.certificate, key = make_certificate(folder)
        settings = {
            "addr": "127.0.0.1",
            "port": f"{port}",
            "user": self.USER,
            "pass": self.PASSWORD,
            "store_dir": str(folder / "data"),
            "tlscert": str(self.certificate),
            "tlskey": str(key),
        }
        command = [
            program,
            "--jetstream",
            "--tls",
            *(part for name, value in settings.items() for part in (f"--{name}", value)),
        ]
        self._server = Server(command, port, folder / "nats.log")

    def start(self) -> None:
        """Start the server."""
        self._server.start()

    def stop(self) -> None:
        """Stop the server. Its streams are kept in files."""
        self._server.stop()

    @property
    def log_tail(self) -> str:
        """The last lines of the log."""
        return self._server.log_tail
