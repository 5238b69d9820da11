"""A PostgreSQL server on this machine, from the packages of its system, with logical decoding switched on.

``python -m components.postgres`` (``./run postgres``) runs one until Ctrl-C.
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
    "/usr/lib/postgresql/*/bin",  # Debian and its kin keep them off the PATH
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
)
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_wal_senders": "10",
    "max_replication_slots": "20",
    "fsync": "off",  # nothing here outlives the machine
}


def postgres_program(name: str) -> str:
    """The path of ``postgres`` or what comes with it, of the newest version. Raises ``MissingComponentError``."""
    folders = sorted((folder for place in _PLACES for folder in glob.glob(place)), key=_version_in, reverse=True)
    found = shutil.which(name, path=os.pathsep.join([*folders, os.environ.get("PATH", "")]))
    if found is None:
        raise MissingComponentError(
            f"There is no PostgreSQL server here ({name} is missing). Install it (apt-get install postgresql, "
            f"dnf install postgresql-server, brew install postgresql@16), or let ./run do so: ./run postgres."
        )
    return found


def _version_in(folder: str) -> int:
    return max(map(int, re.findall(r"\d+", folder)))


def _unprivileged_user() -> str:
    """Who runs the server, which refuses to be run by root; empty for whoever runs this."""
    if os.geteuid() != 0:
        return ""
    names = {entry.pw_name for entry in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in names:
            return name
    raise MissingComponentError("PostgreSQL refuses to run as root, and there is no user postgres or nobody.")


class PostgresServer:
    """A server that keeps its data in ``folder``, which has to be its own; lets everybody on this machine in.

    ``conninfo`` is what clients connect with. The port stays the same when the server is stopped and started again.
    """

    def __init__(self, folder: Path, port: int | None = None, *, wal_level: str = "logical") -> None:
        """``port``: where it listens; a free one if None. ``wal_level``: without "logical" nobody can follow changes.

        Raises ``MissingComponentError``.
        """
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
        """Start the server, and wait until it listens. Makes the folder ready the first time."""
        if not (self._folder / "data").exists():
            self._initialize()
        self._server.start()

    def stop(self) -> None:
        """End the server."""
        self._server.stop()

    def kill(self) -> None:
        """End the server as a crash does. What it has committed is there after the next start."""
        self._server.kill()

    def wait(self) -> None:
        """Wait until the server ends by itself, or Ctrl-C ends it."""
        self._server.wait()

    @property
    def log_tail(self) -> str:
        """The last that the server has said."""
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
    parser.add_argument("--port", type=int, default=5432, help="where it listens (5432)")
    parser.add_argument("--data", type=Path, help="folder that keeps its data; without it they are gone in the end")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dsv2-postgres-") as temporary:
        folder = arguments.data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            server = PostgresServer(folder.absolute(), arguments.port)
            server.start()
        except (MissingComponentError, RuntimeError) as error:
            parser.exit(1, f"{error}\n")
        print(f"PostgreSQL listens; connect with: psql '{server.conninfo}'. Ctrl-C ends it.", flush=True)
        server.wait()


if __name__ == "__main__":
    main()
