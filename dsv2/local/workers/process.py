"""A worker process, as the process of the job sees it."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Pipe

from dsv2.errors import WorkerLostError
from dsv2.local.workers.messages import Failure, Reply, Request
from dsv2.runtime.report.carried_errors import from_text

_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dsv2.local.workers.worker import main; "
    "main(*map(int, sys.argv[2:]))"
)
_SECONDS_TO_CLOSE = 5.0


class WorkerProcess:
    """A process with a ``Worker``.

    Args:
        number: The worker.
        description: What it runs, for errors.
        lock: The file that locks the checkpoint. It stays locked until the process has ended. None: there is none.
    """

    def __init__(self, number: int, description: str, lock: int | None) -> None:
        self.number = number
        self._description = description
        self.connection, requests = Pipe()
        """The connection for requests."""
        self._logs, logs = Pipe()
        passed = [requests.fileno(), logs.fileno()]
        command = [sys.executable, "-c", _PROGRAM, json.dumps([*map(str, sys.path)]), *map(str, (number, *passed))]
        self._process = subprocess.Popen(command, pass_fds=[*passed, *([] if lock is None else [lock])])
        requests.close()
        logs.close()
        self._forwarding = threading.Thread(target=self._forward_logs, daemon=True)
        self._forwarding.start()

    def begin(self, job: bytes) -> None:
        """Send the job. Called once, before the first request. Raises ``WorkerLostError``."""
        try:
            self.connection.send_bytes(job)
        except OSError:
            raise self._lost() from None

    def request(self, request: Request) -> None:
        """Send a request. Raises ``WorkerLostError``."""
        try:
            self.connection.send(request)
        except OSError:
            raise self._lost() from None

    def reply(self) -> Reply:
        """Return the reply to a request.

        Raises:
            WorkerLostError: The process has ended.
            Dsv2Error: The request failed.
        """
        try:
            reply: Reply | Failure = self.connection.recv()
        except (EOFError, OSError):
            raise self._lost() from None
        if isinstance(reply, Failure):
            raise from_text(reply.text)
        return reply

    def terminate(self) -> None:
        """Ask the process to close its functions and to end."""
        self._process.terminate()

    def end(self) -> None:
        """Wait until the process has ended. It is killed if that takes longer than 5 s."""
        self.connection.close()  # a worker without requests ends
        try:
            self._process.wait(_SECONDS_TO_CLOSE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forwarding.join(_SECONDS_TO_CLOSE)  # a process that it has started may have the connection
        self._logs.close()

    def _forward_logs(self) -> None:
        """Handle the log records of the worker until it ends."""
        with suppress(EOFError, OSError):
            while True:
                record: logging.LogRecord = self._logs.recv()
                logger = logging.getLogger(record.name)
                if logger.isEnabledFor(record.levelno):
                    logger.handle(record)

    def _lost(self) -> WorkerLostError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_SECONDS_TO_CLOSE)
        code = self._process.returncode or 0
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return WorkerLostError(
            f"Worker process {self.number} (pid {self._process.pid}) {how}. It was killed, perhaps because memory ran "
            f"out, or native code crashed, or os._exit was called. It ran {self._description}."
        )
