"""Runs a contestant in a separate process or in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from benchmarks.peers.environments import Environment
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("Failed", "run_apart", "run_here")

_ROOT = Path(__file__).resolve().parent.parent.parent
_LINES = 30  # the lines of output shown when a program fails


class Failed(Exception):  # noqa: N818 - a result rather than an error
    """A program failed or timed out. The message ends with its last output."""


def run_apart(environment: Environment, job: str, program: str, task: Task, limit: float) -> Outcome:
    """Run the program in its environment for at most ``limit`` seconds. Raises ``Unavailable`` or ``Failed``."""
    environment.make()
    with tempfile.TemporaryDirectory(prefix="dsv2-benchmark-") as folder:
        outcome, log = Path(folder, "outcome.json"), Path(folder, "log")
        command = [*environment.command(job, program), "--outcome", str(outcome), *task.arguments()]
        with log.open("w") as output:
            # A separate folder for files of the program, and a separate session to kill all of its processes.
            process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **environment.variables()},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                raise Failed(f"not done after {limit:.0f} s") from None
            finally:
                _end(process)
        if code or not outcome.exists():
            last = "\n".join(log.read_text(errors="replace").splitlines()[-_LINES:])
            raise Failed(f"exit code {code}:\n{last}")
        return Outcome.read(outcome)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_here(job: str, program: str, task: Task) -> Outcome:
    """Run a program of the project's environment in this process, which avoids starting one."""
    outcome: Outcome = import_module(f"benchmarks.peers.{job}.{program}").measure(task)
    return outcome
