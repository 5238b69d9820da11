"""A server process, with its log and its port."""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ("MissingComponentError", "Server", "free_ports", "listens")

_READY_SECONDS = 180.0  # a server that ends is noticed at once; Kafka needs a minute on a busy machine
_POLL_SECONDS = 0.05
_LAST_CHARACTERS = 4000
_PORTS = range(20_000, 32_000)  # below the ephemeral ports
_STRIDE = 7_411  # the golden section of their number, and prime
_ROOT = Path(__file__).parent.parent


class MissingComponentError(Exception):
    """The machine lacks something that a server requires. The message explains how to install it."""


class Server:
    """A command that listens on a local port until it is stopped, and that may be started again.

    The server never outlives this process, even if this process is killed.

    Args:
        command: The command.
        port: The port on which it listens.
        log: The file to which its output is appended.
        is_ready: Returns whether it accepts requests. None (default): it does when it listens.
        stop: The name of the signal that stops it. Default: ``"SIGTERM"``.
        user: The user of the process. Empty (default): the current user.
    """

    def __init__(
        self,
        command: list[str],
        port: int,
        log: Path,
        *,
        is_ready: Callable[[], bool] | None = None,
        stop: str = "SIGTERM",
        user: str = "",
    ) -> None:
        self._command = command
        self._port = port
        self._log = log
        self._is_ready = is_ready or (lambda: listens(port))
        self._stop = stop
        self._user = user
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def log_tail(self) -> str:
        """The last lines of the log."""
        return self._log.read_text(errors="replace")[-_LAST_CHARACTERS:] if self._log.exists() else ""

    def start(self) -> None:
        """Start the command and wait until it is ready.

        Raises:
            RuntimeError: The port is in use, or the server did not become ready. The message contains its log.
        """
        if listens(self._port):
            raise RuntimeError(f"Port {self._port} is already in use. Choose another one.")
        command = [sys.executable, "-m", "components.guard", self._stop, self._user, *self._command]
        with self._log.open("ab") as log:
            self._guard = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline = time.monotonic() + _READY_SECONDS
        while not self._is_ready():
            if self._guard.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self._command[0]} did not start. The end of its log:\n{self.log_tail}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Stop the server, or kill it if that takes too long. Does nothing if it is not running."""
        self._end(b"")

    def kill(self) -> None:
        """Kill the server."""
        self._end(b"k")

    def wait(self) -> None:
        """Wait until the server exits, or stop it on Ctrl-C."""
        assert self._guard is not None
        try:
            self._guard.wait()
        except KeyboardInterrupt:
            self.stop()

    def _end(self, message: bytes) -> None:
        if self._guard is not None:
            self._guard.communicate(message)
            self._guard = None


def listens(port: int) -> bool:
    """Return whether a local process accepts connections on ``port``."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def first_port(pid: int) -> int:
    """Return where the search of a process begins, in ``_PORTS``. Parts of a test run have neighbouring pids."""
    return pid * _STRIDE % len(_PORTS)


def free_ports(count: int) -> list[int]:
    """Return ``count`` unused ports, and reserve them until this process ends.

    A port stays reserved until its server has started, and while that is restarted: neither this process nor another
    one receives it from this function. Processes begin their search at distant ports, which keeps it short.
    """
    found: list[int] = []
    first = first_port(os.getpid())
    for port in (*_PORTS[first:], *_PORTS[:first]):
        with contextlib.suppress(OSError):
            _reserve(port)
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"There are no {count} free ports from {_PORTS.start} to {_PORTS.stop}.")


def _reserve(port: int) -> None:
    """Raise OSError if a process listens on ``port`` or has reserved it.

    The reservation is the UDP port of the same number, which the server does not need. A port that another process has
    reserved is not probed, as its server could not start during that.
    """
    reservation = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        reservation.bind(("127.0.0.1", port))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
    except OSError:
        reservation.close()
        raise
    atexit.register(reservation.close)
