"""A local NATS server with JetStream, from the packages of the system."""

from __future__ import annotations

import shutil
from pathlib import Path

from components.certificate import make_certificate
from components.server import MissingComponentError, Server, free_ports

__all__ = ("NatsServer",)


_SETTINGS = """
server_name: test
listen: "127.0.0.1:%(port)s"
authorization { user: "%(user)s", password: "%(password)s", timeout: 60 }
jetstream { store_dir: "%(data)s" }
tls { cert_file: "%(certificate)s", key_file: "%(key)s", timeout: 60 }
mqtt { listen: "127.0.0.1:%(mqtt_port)s" }
"""


class NatsServer:
    """A server with TLS and a password. It is an MQTT broker as well.

    Args:
        folder: The folder of its data and its log.

    Attributes:
        url: Its URL.
        mqtt_port: The port for MQTT, without TLS.
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
        port, self.mqtt_port = free_ports(2)
        self.url = f"tls://127.0.0.1:{port}"
        self.certificate, key = make_certificate(folder)
        settings = folder / "nats.conf"
        values = {"port": port, "mqtt_port": self.mqtt_port, "user": self.USER, "password": self.PASSWORD}
        files = {"data": folder / "data", "certificate": self.certificate, "key": key}
        settings.write_text(_SETTINGS % {**values, **files}, encoding="utf-8")
        self._server = Server([program, "--config", str(settings)], port, folder / "nats.log")

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
