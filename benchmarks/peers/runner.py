"""Runs a contestant: in a process of its own, or here."""

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
_LINES = 30  # of what a program said, when it fails


class Failed(Exception):  # noqa: N818 - the other answer
    """A program failed, or took too long; the message ends with what it said last."""


def run_apart(environment: Environment, job: str, program: str, task: Task, limit: float) -> Outcome:
    """Run the program in its environment, at most ``limit`` seconds. Raises Unavailable or Failed."""
    environment.make()
    with tempfile.TemporaryDirectory(prefix="dsv2-benchmark-") as folder:
        outcome, said = Path(folder, "outcome.json"), Path(folder, "said")
        command = [*environment.command(job, program), "--outcome", str(outcome), *task.arguments()]
        with said.open("w") as output:
            # A folder of its own, for what a program drops; a session of its own, so that nothing of it stays behind.
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
            last = "\n".join(said.read_text(errors="replace").splitlines()[-_LINES:])
            raise Failed(f"exit code {code}:\n{last}")
        return Outcome.read(outcome)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def run_here(job: str, program: str, task: Task) -> Outcome:
    """Run a program of the project's own environment in this process, which saves its start."""
    outcome: Outcome = import_module(f"benchmarks.peers.{job}.{program}").measure(task)
    return outcome
