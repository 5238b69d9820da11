"""Jobs of the tests in processes of their own, which tests stop at gates and kill."""

from __future__ import annotations

import os
import signal
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
        assert self.wait() != 0, self.log()

    def terminate(self) -> None:
        """SIGTERM for the driver's Python alone, as a service manager does it; wait for everything else to end."""
        os.kill(self.pid, signal.SIGTERM)
        self.wait_for_session()

    def run_to(self, gate: Gate) -> int:
        waiting = super().run_to(gate)
        assert self.batches("offsets") == self.batches("commits") + 1
        return waiting
