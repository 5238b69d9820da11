"""Jobs in processes of their own, which tests stop at gates and kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

__all__ = ("Gate", "JobProcess", "kill_session")

_ROOT = Path(__file__).parents[2]
_DEADLINE_SECONDS = 120.0
_PAUSE_SECONDS = 0.001


def kill_session(leader: int) -> None:
    """SIGKILL for every process of a session: Spark's Python daemon has a process group of its own."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if os.getsid(int(entry.name)) == leader:
                os.kill(int(entry.name), signal.SIGKILL)
        except ProcessLookupError:
            pass  # it was quicker


class Gate:
    """A place in a job where a test may have it wait: two files in ``folder``. Both sides make one of their own."""

    def __init__(self, folder: str | Path, name: str) -> None:
        self.name = name
        self._shut = Path(folder, f"{name}.shut")
        self._waiting = Path(folder, f"{name}.waiting")

    def pass_through(self) -> None:
        """Called by the job: wait while the gate is shut, and tell who waits."""
        if self._shut.exists():
            partial = self._waiting.with_suffix(f".{os.getpid()}")
            partial.write_text(str(os.getpid()))
            partial.rename(self._waiting)
            while self._shut.exists():
                time.sleep(_PAUSE_SECONDS)

    def shut(self) -> None:
        """Called by the test, when nobody can be on the way through."""
        self._waiting.unlink(missing_ok=True)
        self._shut.touch()

    def open(self) -> None:
        """Called by the test: let all go on who wait."""
        self._shut.unlink()

    @property
    def waiting(self) -> int | None:
        """The process that has come last, if any has."""
        return int(self._waiting.read_text()) if self._waiting.exists() else None


class JobProcess:
    """A job that keeps all it has in ``folder``: ``python -m tests.spark.MODULE FOLDER ARGUMENTS``."""

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        self.folder = folder
        self._command = [sys.executable, "-m", f"tests.spark.{module}", str(folder), *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that was started last, which leads a session."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, or start it again."""
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), "PYSPARK_PYTHON": sys.executable}
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=_ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """SIGKILL for the driver, its JVM and all workers."""
        kill_session(self.pid)
        self._wait()

    def finish(self) -> None:
        """Wait for its end, which has to be a good one."""
        try:
            assert self._wait() == 0, self.log()
        finally:
            kill_session(self.pid)

    def run_to(self, gate: Gate) -> int:
        """Let a micro-batch pass, for the first one after a start may be a repeated one; stop the next at ``gate``.

        Returns the process that waits there. The micro-batch is logged then, and not committed.
        """
        passed = self.batches("commits") + 1
        self.wait_until(lambda: self.batches("commits") >= passed)
        gate.shut()
        self.wait_until(lambda: gate.waiting is not None)
        assert self.batches("offsets") == self.batches("commits") + 1
        return gate.waiting or 0

    def batches(self, log: str) -> int:
        """How many micro-batches stand in one of Spark's logs: ``"offsets"``, ``"commits"``."""
        numbers = [int(file.name) for file in (self.folder / "checkpoint" / log).glob("[0-9]*")]
        return max(numbers, default=-1) + 1

    def wait_until(self, happened: Callable[[], bool]) -> None:
        """Wait while the job runs; fail if it ends before that, or takes too long."""
        assert self._process is not None
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while not happened():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                pytest.fail(f"The job did not come so far: {self.log()}")
            time.sleep(_PAUSE_SECONDS)

    def log(self) -> str:
        """The last that it has said."""
        return (self.folder / "log").read_text(errors="replace")[-3000:]

    def _wait(self) -> int:
        assert self._process is not None
        return self._process.wait(3 * _DEADLINE_SECONDS)
