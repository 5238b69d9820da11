"""A server that forks the Python processes of Spark in tests, with the modules that each of them would import.

Spark starts a Python process for each source of a query, for its state and for its workers, and each would import
PySpark, PyArrow, pandas and the project, which takes a second of CPU time.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import json
import os
import runpy
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from components.fork_client import HEADER
from components.python_path import python_path

__all__ = ("PRELOADED", "RUN_BY_SPARK", "ForkServer")

_CLIENT = Path(__file__).with_name("fork_client.py")
RUN_BY_SPARK = (
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.streaming.transform_with_state_driver_worker",
)
"""The Python modules that Spark runs."""
PRELOADED = (
    "hypothesis",
    "pandas",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.proto.StateMessage_pb2",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.testing",
    "pyspark.worker",
    "pytest",
    "dsv2.arrow.keyed",
    "dsv2.extension.event_time",
    "dsv2.extension.join",
    "dsv2.extension.window",
    "runtime_spark.runtime",
    "tests.spark.programs",
    "tests.support",
)
"""The modules that most of them import."""
_HASH_SEED = "0"
"""That of the workers: PySpark sets it."""


class ForkServer:
    """A server in a process of its own. Use it as a context manager.

    Args:
        folder: A folder for its files, with a short name.
        modules: The modules that its processes run. All others are run by Python itself.
        preloaded: The modules that they find imported. Those that they run are not among them.

    Attributes:
        python: A program that can replace Python for Spark, see ``PYSPARK_PYTHON``.
    """

    def __init__(
        self, folder: Path, modules: Iterable[str] = RUN_BY_SPARK, preloaded: Iterable[str] = PRELOADED
    ) -> None:
        self._address = folder / "fork-server"
        self._preloaded = [*preloaded]
        self.python = folder / "python"
        command = [sys.executable, "-IS", _CLIENT, sys.executable, self._address, ",".join(modules)]
        self.python.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, command))} "$@"\n')
        self.python.chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ForkServer:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self._address))
            listening.listen(64)
            number = listening.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(number), *self._preloaded],
                env={
                    **os.environ,
                    "PYTHONPATH": python_path(),
                    "PYTHONHASHSEED": _HASH_SEED,
                    # Only the thread that forks is in the new process, so there must be no other.
                    "JE_ARROW_MALLOC_CONF": "background_thread:false",
                    "OPENBLAS_NUM_THREADS": "1",
                },
                stdin=subprocess.PIPE,
                pass_fds=[number],
                cwd=Path(__file__).parent.parent,
            )
        return self

    def __exit__(self, *_: object) -> None:
        """Raises ``RuntimeError`` if the server has already ended: since then, all processes have started slowly."""
        assert self._process is not None
        code = self._process.poll()
        self._process.communicate()
        if code is not None:
            raise RuntimeError(f"The fork server ended too early, with exit code {code}.")


class _Server:
    """The loop of the server, in its own process."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._selector = selectors.DefaultSelector()
        self._clients: dict[int, socket.socket] = {}
        """By the id of the process that was forked for it."""
        woken, wake = socket.socketpair()
        for end in (woken, wake):
            end.setblocking(False)
        self._woken, self._wake = woken, wake
        signal.set_wakeup_fd(wake.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> dict[str, Any]:
        """Fork processes. Returns in each of them, with its request. The server ends with its standard input."""
        self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, self._reap)
        self._selector.register(sys.stdin, selectors.EVENT_READ, sys.exit)
        while True:
            for key, _ in self._selector.select():
                request: dict[str, Any] | None = key.data()
                if request is not None:
                    return request

    def _accept(self) -> dict[str, Any] | None:
        client, _ = self._listening.accept()
        header, numbers, _, _ = socket.recv_fds(client, HEADER, 3)
        size = int.from_bytes(header, "big")
        request = _read(client, size)
        if not header or len(request) < size:  # the client was killed
            client.close()
            for number in numbers:
                os.close(number)
            return None
        process = os.fork()
        if not process:
            self._detach()
            client.close()
            for number, standard in zip(numbers, (0, 1, 2), strict=True):
                os.dup2(number, standard)
        for number in numbers:
            os.close(number)
        if not process:
            asked: dict[str, Any] = json.loads(request)
            return asked
        self._clients[process] = client
        self._selector.register(client, selectors.EVENT_READ, lambda: self._abandon(process))
        return None

    def _detach(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for one in (self._listening, self._woken, self._wake, *self._clients.values()):
            one.close()

    def _abandon(self, process: int) -> None:
        """Ends a process whose client was killed."""
        client = self._clients.pop(process, None)
        if client is None:  # it has ended at the same time
            return
        self._selector.unregister(client)
        client.close()
        os.kill(process, signal.SIGTERM)

    def _reap(self) -> None:
        self._woken.recv(4096)
        for process, status in iter(_ended, (0, 0)):
            client = self._clients.pop(process, None)
            if client is not None:
                self._selector.unregister(client)
                if os.WIFSIGNALED(status):
                    print(f"Process {process} was ended by signal {os.WTERMSIG(status)}.", file=sys.stderr, flush=True)
                with client, suppress(OSError):  # the client may have been killed just now
                    client.sendall(bytes([os.waitstatus_to_exitcode(status) % 256]))


def _ended() -> tuple[int, int]:
    """A process that has ended, and its status."""
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return 0, 0


def _read(client: socket.socket, size: int) -> bytes:
    with client.makefile("rb", buffering=0) as file:
        read = b""
        while len(read) < size and (part := file.read(size - len(read))):
            read += part
    return read


def _run(request: dict[str, Any]) -> None:
    """Runs a module as Python does with ``-m``, and ends the process."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    given = request["environment"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [request["folder"], *(entry for entry in given if entry and not entry.endswith(".zip"))]
    sys.argv = request["arguments"]
    faulthandler.enable()
    code = 0
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Serve until the process that started this one has closed its standard input."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    _run(_Server(listening).serve())


if __name__ == "__main__":
    main()
