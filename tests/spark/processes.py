"""Jobs of the tests in processes of their own, which tests stop at gates and kill."""

from __future__ import annotations

from pathlib import Path

from storms.common import processes
from storms.common.processes import Gate

__all__ = ("Gate", "JobProcess")


class JobProcess(processes.JobProcess):
    """A job that keeps all it has in ``folder``: ``python -m tests.spark.MODULE FOLDER ARGUMENTS``."""

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        super().__init__(folder, ["-m", f"tests.spark.{module}", str(folder), *arguments])

    def fail(self) -> None:
        """Wait for its end, which has to be a failure."""
        try:
            assert self._wait() != 0, self.log()
        finally:
            kill_session(self.pid)

    def run_to(self, gate: Gate) -> int:
        waiting = super().run_to(gate)
        assert self.batches("offsets") == self.batches("commits") + 1
        return waiting
