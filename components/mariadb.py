"""A local MariaDB server, from the packages of the system."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from pathlib import Path

from components.server import MissingComponentError, Server, free_ports

__all__ = ("MariaDBServer",)

_PLACES = ("/usr/sbin", "/opt/homebrew/bin", "/usr/local/bin")
_SETTINGS = {
    "bind-address": "127.0.0.1",
    "character-set-server": "utf8mb4",
    "innodb-flush-log-at-trx-commit": "0",  # the data need not survive a crash of the machine
    "max-connections": "1000",  # those of earlier tests are left to the garbage collector
    "max-allowed-packet": "1M",  # a small limit, which tests exceed
    "default-time-zone": "-05:00",
}


class MariaDBServer:
    """A server with an empty database and a user who may do anything.

    Args:
        folder: The folder of its data, which must contain nothing else.

    Attributes:
        url: The URL of the database for SQLAlchemy, with PyMySQL.

    Raises:
        MissingComponentError: MariaDB is not installed.
    """

    PASSWORD = "s3cret/pass"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._options = [f"--user={getpass.getuser()}", f"--datadir={folder / 'data'}"]
        (port,) = free_ports(1)
        self.url = f"mysql+pymysql://dsv2:{self.PASSWORD.replace('/', '%2F')}@127.0.0.1:{port}/dsv2"
        settings = {**_SETTINGS, "port": f"{port}", "socket": str(folder / "socket"), "init-file": str(folder / "init")}
        options = [f"--{name}={value}" for name, value in settings.items()]
        command = [_program("mariadbd"), "--no-defaults", "--skip-name-resolve", *self._options, *options]
        self._server = Server(command, port, folder / "log")

    def start(self) -> None:
        """Start the server. The first start initializes the folder."""
        if not (self._folder / "data").exists():
            self._initialize()
        self._server.start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()

    @property
    def log_tail(self) -> str:
        """The last lines of the log."""
        return self._server.log_tail

    def _initialize(self) -> None:
        statements = (
            "CREATE DATABASE IF NOT EXISTS dsv2;",
            f"GRANT ALL ON *.* TO dsv2@'%' IDENTIFIED BY '{self.PASSWORD}';",
        )
        (self._folder / "init").write_text("\n".join(statements), encoding="utf-8")
        command = [_program("mariadb-install-db"), "--no-defaults", *self._options, "--skip-test-db"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise RuntimeError(f"mariadb-install-db failed:\n{run.stdout}{run.stderr}")


def _program(name: str) -> str:
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *_PLACES]))
    if found is None:
        raise MissingComponentError("There is no MariaDB server here. Install it: apt-get install mariadb-server.")
    return found
