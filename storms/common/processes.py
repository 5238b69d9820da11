"""Jobs in processes of their own, which are stopped at gates and killed."""

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

__all__ = ("Gate", "JobOverError", "JobProcess", "children_of_session", "kill_session")

_ROOT = Path(__file__).parents[2]
_DEADLINE_SECONDS = 240.0
_PAUSE_SECONDS = 0.001


class JobOverError(Exception):
    """The job ended, with exit code ``code``, or took too long, before what was waited for had happened."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


def children_of_session(leader: int) -> Iterator[tuple[int, str]]:
    """Process id and command line of every process of a session."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) == leader:
                yield int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (ProcessLookupError, FileNotFoundError):
            pass  # it has ended


def kill_session(leader: int) -> None:
    """SIGKILL for every process of a session: Spark's Python daemon has a process group of its own."""
    for process, _ in children_of_session(leader):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


class Gate:
    """A place in a job where it can be made to wait: two files in ``folder``. Each side makes one of them."""

    def __init__(self, folder: str | Path, name: str) -> None:
        self.name = name
        self._shut = Path(folder, f"{name}.shut")
        self._waiting = Path(folder, f"{name}.waiting")

    def pass_through(self) -> None:
        """Called by the job: wait while the gate is shut, and leave the id of the process that waits."""
        if self._shut.exists():
            partial = self._waiting.with_suffix(f".{os.getpid()}")
            partial.write_text(str(os.getpid()))
            partial.rename(self._waiting)
            while self._shut.exists():
                time.sleep(_PAUSE_SECONDS)

    def shut(self) -> None:
        """Called from outside."""
        self._waiting.unlink(missing_ok=True)
        self._shut.touch()

    def open(self) -> None:
        """Called from outside: let every process through."""
        self._shut.unlink(missing_ok=True)

    @property
    def waiting(self) -> int | None:
        """The process that came last, if any has."""
        return int(self._waiting.read_text()) if self._waiting.exists() else None


class JobProcess:
    """A job that keeps everything in ``folder``: ``command`` is what Python is called with.

    Leaving the block of its ``with`` statement kills what is left of it.

    ``path``: where modules are looked for besides the project.
    """

    def __init__(self, folder: Path, command: Sequence[str], *, path: Path | None = None) -> None:
        self.folder = folder
        self._command = [sys.executable, *command]
        self._path = os.pathsep.join(map(str, [_ROOT] if path is None else [path, _ROOT]))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self.kill()

    @property
    def pid(self) -> int:
        """The process that was started last. It leads a session."""
        return self._started.pid

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Start it, or start it again."""
        environment = {**os.environ, "PYTHONPATH": self._path, "PYSPARK_PYTHON": sys.executable}
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=_ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL for the driver, its JVM and all workers."""
        kill_session(self.pid)
        self._started.wait(_DEADLINE_SECONDS)

    def wait(self, seconds: float = 3 * _DEADLINE_SECONDS) -> int:
        """Wait for its end; returns the exit code. Raises ``JobOverError`` if it takes longer than ``seconds``."""
        try:
            return self._started.wait(seconds)
        except subprocess.TimeoutExpired:
            raise JobOverError(f"The job has not ended after {seconds:.0f} s: {self.log()}") from None
        finally:
            kill_session(self.pid)

    def wait_for_session(self) -> None:
        """Wait until no process of it is left. Raises ``JobOverError`` if that takes too long."""
        self._started.wait(_DEADLINE_SECONDS)
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while any(children_of_session(self.pid)):
            if time.monotonic() > deadline:
                raise JobOverError("Processes of the job are left.")
            time.sleep(_PAUSE_SECONDS)

    def finish(self) -> None:
        """Wait for its end. Raises ``JobOverError`` unless it succeeds."""
        if (code := self.wait()) != 0:
            raise JobOverError(f"The job has failed with exit code {code}: {self.log()}", code)

    def run_to(self, gate: Gate) -> int:
        """Let one micro-batch pass, for the first one after a start may be a repeated one; stop the next at ``gate``.

        Returns the process that waits there. The micro-batch is in the log of offsets then, and not committed.
        """
        passed = self.batches("commits") + 1
        self.wait_until(lambda: self.batches("commits") >= passed)
        gate.shut()
        self.wait_until(lambda: gate.waiting is not None)
        return gate.waiting or 0

    def batches(self, log: str) -> int:
        """How many micro-batches are in one of Spark's logs: ``"offsets"``, ``"commits"``."""
        numbers = [int(file.name) for file in (self.folder / "checkpoint" / log).glob("[0-9]*")]
        return max(numbers, default=-1) + 1

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Wait while the job runs. Raises ``JobOverError`` if it ends first, or takes too long."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not happened():
            code = self._started.poll()
            if code is not None or time.monotonic() > deadline:
                if happened():
                    return
                self.kill()
                raise JobOverError(f"The job did not get that far: {self.log()}", code)
            time.sleep(_PAUSE_SECONDS)

    @property
    def log_file(self) -> Path:
        """Everything that all starts have printed."""
        return self.folder / "log"

    def log(self) -> str:
        """The end of it."""
        return self.log_file.read_text(errors="replace")[-3000:]
