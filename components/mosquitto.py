"""A local MQTT broker, Mosquitto, from the packages of the system. It keeps data in memory."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from components.certificate import make_certificate
from components.server import MissingComponentError, Server, free_ports

__all__ = ("MosquittoBroker",)

_SETTINGS = """
listener {port} 127.0.0.1
cafile {certificate}
certfile {certificate}
keyfile {key}
password_file {passwords}
acl_file {access}
allow_anonymous false
persistence false
max_inflight_messages 0
max_queued_messages 0
"""


class MosquittoBroker:
    """A broker with TLS and a password, for the topics below ``suite``.

    Args:
        folder: The folder of its settings and its log.

    Attributes:
        url: Its URL.
        port: Its port.
        certificate: The certificate that clients must trust.

    Raises:
        MissingComponentError: Mosquitto is not installed.
    """

    USER = "user"
    PASSWORD = "s3cret/mqtt"

    def __init__(self, folder: Path) -> None:
        path = f"{os.environ.get('PATH', '')}:/usr/sbin"
        program = shutil.which("mosquitto", path=path)
        if program is None:
            raise MissingComponentError("There is no MQTT broker here. Install it: apt-get install mosquitto.")
        (self.port,) = free_ports(1)
        self.url = f"mqtts://{self.USER}:{self.PASSWORD.replace('/', '%2F')}@127.0.0.1:{self.port}"
        self.certificate, key = make_certificate(folder)
        passwords, access, settings = folder / "passwords", folder / "access", folder / "mosquitto.conf"
        subprocess.run(["mosquitto_passwd", "-c", "-b", str(passwords), self.USER, self.PASSWORD], check=True)
        passwords.chmod(0o644)  # the broker runs as another user if root starts it
        access.write_text(f"user {self.USER}\ntopic readwrite suite/#\n", encoding="utf-8")
        files = {"certificate": self.certificate, "key": key, "passwords": passwords, "access": access}
        settings.write_text(_SETTINGS.format(port=self.port, **files), encoding="utf-8")
        folder.chmod(0o755)
        self._server = Server([program, "-c", str(settings)], self.port, folder / "mosquitto.log")

    def start(self) -> None:
        """Start the broker."""
        self._server.start()

    def stop(self) -> None:
        """Stop the broker. Its data are lost."""
        self._server.stop()

    @property
    def log_tail(self) -> str:
        """The last lines of the log."""
        return self._server.log_tail
