"""A server that runs beside us: its process, its log, the port that it listens on."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ("MissingComponentError", "Server", "free_ports", "listens")

_READY_SECONDS = 60.0
_POLL_SECONDS = 0.05
_LAST_CHARACTERS = 4000
_PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections
_ROOT = Path(__file__).parent.parent


class MissingComponentError(Exception):
    """The machine lacks what a server needs; says what, and how to get it."""


class Server:
    """One command that listens on ``port`` of this machine until it is stopped. May be started again after that.

    ``stop`` names the signal that ends it, ``user`` who runs it (empty: whoever runs this). It does not outlive this
    process, however that ends.
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
        """``is_ready``: whether it serves; without it, it does as soon as it listens."""
        self._command = command
        self._port = port
        self._log = log
        self._is_ready = is_ready or (lambda: listens(port))
        self._stop = stop
        self._user = user
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def log_tail(self) -> str:
        """The last that the server has said."""
        return self._log.read_text(errors="replace")[-_LAST_CHARACTERS:] if self._log.exists() else ""

    def start(self) -> None:
        """Start the command and wait until it serves. Raises ``RuntimeError``, with its last words, if it does not."""
        if listens(self._port):
            raise RuntimeError(f"Something else listens on port {self._port} already; choose another one.")
        command = [sys.executable, "-m", "components.guard", self._stop, self._user, *self._command]
        with self._log.open("ab") as log:
            self._guard = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline = time.monotonic() + _READY_SECONDS
        while not self._is_ready():
            if self._guard.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self._command[0]} does not run; its log ends with:\n{self.log_tail}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """End the server in its own way, or, if that takes too long, at once. Nothing happens if it does not run."""
        self._end(b"")

    def kill(self) -> None:
        """End the server as a crash does."""
        self._end(b"k")

    def wait(self) -> None:
        """Wait until the server ends by itself, or Ctrl-C ends it."""
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
    """Whether something on this machine accepts connections on ``port``."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1.0):
        return True
    return False


def free_ports(count: int) -> list[int]:
    """So many ports that nobody uses; different processes look in different places first."""
    found: list[int] = []
    first = os.getpid() * 8 % len(_PORTS)
    for port in (*_PORTS[first:], *_PORTS[:first]):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise RuntimeError(f"There are no {count} free ports from {_PORTS.start} to {_PORTS.stop}.")
