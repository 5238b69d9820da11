"""Kills of one job on the local runtime."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.local.restoration import on_disk
from storms.common.kill_points import (
    FROM_OUTSIDE,
    MIGRATIONS,
    STARTS,
    WORKER_COPIES,
    WORKER_MIGRATIONS,
    WORKER_POINTS,
    WRITTEN_AGAIN,
    Kill,
    Whose,
)
from storms.common.processes import JobOverError, JobProcess

__all__ = ("LocalAttack",)

_MOST_PASSED = 4  # times that a process passes a phase before it is killed there
_MOST_BATCHES = 12  # that a job runs until a worker is in one of these phases
_RARE = ("worker's segment begun", "worker's pages moved")
_ONCE = (*STARTS, *MIGRATIONS, *WORKER_MIGRATIONS, *WORKER_COPIES, "worker restored", "while state is restored")


class LocalAttack:
    """The kills of one job.

    Args:
        folder: Its folder.
        launcher: The arguments of the Python interpreter before those of the job.
        arguments: The arguments of the job.
        changed: Returns those of a changed program, whose start migrates the checkpoint. None: it never changes.
    """

    def __init__(
        self,
        folder: Path,
        launcher: Sequence[str],
        arguments: Sequence[str],
        changed: Callable[[random.Random], Sequence[str]] | None,
    ) -> None:
        self._folder = folder
        self._launcher = launcher
        self._arguments = arguments
        self._changed = changed
        self.first_batch = 0
        """The first micro-batch of the last run."""

    def strike(self, victim: str, phase: str, chance: random.Random) -> bool:
        """Kill ``victim`` in ``phase``. Returns whether the job had not passed it.

        After a worker, the job is killed some micro-batches later.
        """
        if phase in (*MIGRATIONS, *WORKER_MIGRATIONS) and self._changed is not None:
            self._arguments = self._changed(chance)
        if phase in WORKER_COPIES:
            number, *others = self._arguments
            self._arguments = ["3" if number == "2" else "2", *others]
        if phase == WRITTEN_AGAIN and not self.strike("driver", "sinks", chance):
            return False
        passed = 0 if phase in (*_ONCE, *_RARE) else chance.randrange(_MOST_PASSED)
        whose, power = Whose.WORKER if phase in WORKER_POINTS else Whose.JOB, victim == "machine"
        kill = Kill(str(self._folder), phase, chance.randrange(10**9), passed, power, whose)
        last = kill
        if phase in (*WORKER_POINTS, *FROM_OUTSIDE):
            kill.give()
            later = Whose.JOB if phase in WORKER_POINTS else Whose.JOB_LATER
            until = 1 if later == Whose.JOB_LATER else passed + 2
            until = _MOST_BATCHES if phase in _RARE else until
            last = Kill(str(self._folder), "mark", chance.randrange(10**9), until, power, later)
        self._run_to(last)
        return kill.phase_reached() == phase

    def _run_to(self, kill: Kill) -> None:
        """Run the job until it is killed, or to its end."""
        kill.give()
        with self._process() as process:
            process.start()
            if (code := process.wait()) not in (0, -signal.SIGKILL):
                raise JobOverError(f"The job failed with exit code {code}: {process.log()}", code)

    def finish(self) -> None:
        """Run the job to its end."""
        checkpoint = LocalCheckpoint(on_disk(self._folder / "checkpoint"))
        last = checkpoint.last()
        checkpoint.release()
        self.first_batch = 0 if last is None else last.batch_id + checkpoint.is_written
        with self._process() as process:
            process.start()
            process.finish()

    def _process(self) -> JobProcess:
        return JobProcess(self._folder, [*self._launcher, str(self._folder), *self._arguments])
