"""A local PostgreSQL server, from the packages of the system, with logical decoding enabled.

``python -m components.postgres`` (``./run postgres``) runs a server until Ctrl-C.
"""

from __future__ import annotations

import argparse
import glob
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from components.server import MissingComponentError, Server, free_ports

__all__ = ("PostgresServer", "postgres_program")

_PLACES = (
    "/usr/lib/postgresql/*/bin",  # Debian does not add them to the PATH
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_wal_senders": "10",
    "max_replication_slots": "20",
    "fsync": "off",  # the data need not survive a crash of the machine
}


def postgres_program(name: str) -> str:
    """Return the path of a program of PostgreSQL, such as ``initdb``, of the newest installed version.

    Raises:
        MissingComponentError: It is not installed.
    """
    folders = sorted((folder for place in _PLACES for folder in glob.glob(place)), key=_version_in, reverse=True)
    found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if found is None:
        raise MissingComponentError(
            f"There is no PostgreSQL server here ({name} is missing). Install it (apt-get install postgresql, "
            f"dnf install postgresql-server, brew install postgresql@16), or run ./run postgres, which installs it."
        )
    return found


def _version_in(folder: str) -> int:
    return max(map(int, re.findall(r"\d+", folder)))


def _unprivileged_user() -> str:
    """The user of the server process, which refuses to run as root. Empty: the current user."""
    if os.geteuid() != 0:
        return ""
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in names:
            return name
    raise MissingComponentError("PostgreSQL refuses to run as root, and there is no user postgres or nobody.")


class PostgresServer:
    """A server that trusts all local users. Its port stays the same when it is stopped and started again.

    Args:
        folder: The folder of its data, which must contain nothing else.
        port: The port. None (default): a free port.
        wal_level: PostgreSQL's setting. Default: ``"logical"``, which logical decoding requires.

    Attributes:
        conninfo: The connection string for clients.

    Raises:
        MissingComponentError: PostgreSQL is not installed.
    """

    def __init__(self, folder: Path, port: int | None = None, *, wal_level: str = "logical") -> None:
        self._folder = folder
        self._user = _unprivileged_user()
        self.port = free_ports(1)[0] if port is None else port
        self.conninfo = f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"
        settings = {**_SETTINGS, "wal_level": wal_level, "port": str(self.port), "unix_socket_directories": str(folder)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [postgres_program("postgres"), "-D", str(folder / "data"), *options]
        self._server = Server(
            command, self.port, folder / "log", is_ready=self._is_ready, stop="SIGINT", user=self._user
        )

    def start(self) -> None:
        """Start the server and wait until it accepts connections. The first start initializes the folder."""
        if not (self._folder / "data").exists():
            self._initialize()
        self._server.start()

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()

    def kill(self) -> None:
        """Kill the server. Committed transactions survive."""
        self._server.kill()

    def wait(self) -> None:
        """Wait until the server exits, or stop it on Ctrl-C."""
        self._server.wait()

    @property
    def log_tail(self) -> str:
        """The last lines of the log."""
        return self._server.log_tail

    def _is_ready(self) -> bool:
        asked = [postgres_program("pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(asked, check=False).returncode == 0

    def _initialize(self) -> None:
        user = self._user or None
        if user is not None:
            shutil.chown(self._folder, user)
        form = ["--encoding=UTF8", "--locale=C", "--no-sync", "--auth=trust", "--username=postgres"]
        command = [postgres_program("initdb"), "-D", str(self._folder / "data"), *form]
        run = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            cwd=self._folder,
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
        if run.returncode != 0:
            raise RuntimeError(f"initdb failed:\n{run.stdout}{run.stderr}")


def main() -> None:
    """Run a server until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="./run postgres", description="Run a PostgreSQL server until Ctrl-C.")
    parser.add_argument("--port", type=int, default=5432, help="port (5432)")
    parser.add_argument("--data", type=Path, help="data folder (a temporary one, which is deleted)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dsv2-postgres-") as temporary:
        folder = arguments.data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            server = PostgresServer(folder.absolute(), arguments.port)
            server.start()
        except (MissingComponentError, RuntimeError) as error:
            parser.exit(1, f"{error}\n")
        print(f"PostgreSQL is running. Connect with: psql '{server.conninfo}'. Press Ctrl-C to stop it.", flush=True)
        server.wait()


if __name__ == "__main__":
    main()
