"""Jobs in separate processes that are suspended at gates and killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from components.python_path import python_path

__all__ = ("Gate", "JobOverError", "JobProcess", "children_of_session", "kill_session")

_ROOT = Path(__file__).parents[2]
_DEADLINE_SECONDS = 240.0
_PAUSE_SECONDS = 0.001


class JobOverError(Exception):
    """The job ended (with exit code ``code``) or timed out before the expected event."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


def children_of_session(leader: int) -> Iterator[tuple[int, str]]:
    """Yield the process id and command line of every process of a session."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) == leader:
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (ProcessLookupError, FileNotFoundError):
            pass  # the process has ended


def kill_session(leader: int) -> None:
    """Send SIGKILL to every process of a session. (Spark's Python daemon is in a separate process group.)"""
    for process, _ in children_of_session(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


class Gate:
    """A point in a job at which it can be suspended. It consists of two files; each side creates one of them."""

    def __init__(self, folder: str | Path, name: str) -> None:
        self.name = name
        self._shut = Path(folder, f"{name}.shut")
        self._waiting = Path(folder, f"{name}.waiting")

    def pass_through(self) -> None:
        """Wait while the gate is shut, and write the id of the waiting process. Called by the job."""
        if self._shut.exists():
            partial = self._waiting.with_suffix(f".{os.getpid()}")
            partial.write_text(str(os.getpid()))
            partial.rename(self._waiting)
            while self._shut.exists():
                time.sleep(_PAUSE_SECONDS)

    def shut(self) -> None:
        """Shut the gate. Called from outside."""
        self._waiting.unlink(missing_ok=True)
        self._shut.touch()

    def open(self) -> None:
        """Open the gate for every process. Called from outside."""
        self._shut.unlink(missing_ok=True)

    @property
    def waiting(self) -> int | None:
        """The last process that waited, if there was one."""
        return int(self._waiting.read_text()) if self._waiting.exists() else None


class JobProcess:
    """A job in a separate process. The end of its ``with`` block kills all remaining processes.

    Args:
        folder: The folder for all files of the job.
        command: The arguments of the Python interpreter.
        path: An additional directory for imports.
    """

    def __init__(self, folder: Path, command: Sequence[str], *, path: Path | None = None) -> None:
        self.folder = folder
        self._command = [sys.executable, *command]
        self._path = python_path() if path is None else python_path(path)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    @property
    def pid(self) -> int:
        """The last started process, which is a session leader."""
        return self._started.pid

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Start or restart the job."""
        environment = {**os.environ, "PYTHONPATH": self._path, "PYSPARK_PYTHON": sys.executable}
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=_ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """Send SIGKILL to the driver, its JVM and all workers."""
        kill_session(self.pid)
        self._started.wait(_DEADLINE_SECONDS)

    def wait(self, seconds: float = 3 * _DEADLINE_SECONDS) -> int:
        """Wait for the end of the job. Returns its exit code. Raises ``JobOverError`` after ``seconds``."""
        try:
            return self._started.wait(seconds)
        except subprocess.TimeoutExpired:
            raise JobOverError(f"The job did not end within {seconds:.0f} s: {self.log()}") from None
        finally:
            kill_session(self.pid)

    def wait_for_session(self) -> None:
        """Wait until all processes of the job have ended. Raises ``JobOverError`` after a timeout."""
        self._started.wait(_DEADLINE_SECONDS)
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while any(children_of_session(self.pid)):
            if time.monotonic() > deadline:
                raise JobOverError("Some processes of the job have not ended.")
            time.sleep(_PAUSE_SECONDS)

    def finish(self) -> None:
        """Wait for the end of the job. Raises ``JobOverError`` if it fails."""
        if (code := self.wait()) != 0:
            raise JobOverError(f"The job failed with exit code {code}: {self.log()}", code)

    def run_to(self, gate: Gate) -> int:
        """Wait for the next commit, and suspend the following micro-batch at ``gate``.

        The first micro-batch after a start may be a repeated one, so it is skipped. The suspended micro-batch is in the
        offset log but not committed.

        Returns:
            The id of the waiting process.
        """
        passed = self.batches("commits") + 1
        self.wait_until(lambda: self.batches("commits") >= passed)
        gate.shut()
        self.wait_until(lambda: gate.waiting is not None)
        return gate.waiting or 0

    def batches(self, log: str) -> int:
        """The number of micro-batches in one of Spark's logs: ``"offsets"`` or ``"commits"``."""
        numbers = [int(file.name) for file in (self.folder / "checkpoint" / log).glob("[0-9]*")]
        return max(numbers, default=-1) + 1

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Wait until ``happened()`` is true. Raises ``JobOverError`` if the job ends first, or after a timeout."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not happened():
            code = self._started.poll()
            if code is not None or time.monotonic() > deadline:
                if happened():
                    return
                self.kill()
                raise JobOverError(f"The job ended or timed out before the expected event: {self.log()}", code)
            time.sleep(_PAUSE_SECONDS)

    @property
    def log_file(self) -> Path:
        """The output of all starts of the job."""
        return self.folder / "log"

    def log(self) -> str:
        """The end of the log."""
        return self.log_file.read_text(errors="replace")[-3000:]
