"""Test jobs in separate processes, which tests stop at gates and kill."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from storms.common import processes
from storms.common.processes import Gate as Gate


class JobProcess(processes.JobProcess):
    """A job with all of its files in ``folder``: ``python -m tests.spark.MODULE FOLDER ARGUMENTS``."""

    def __init__(self, folder: Path, module: str, *arguments: str) -> None:
        super().__init__(folder, ["-m", f"tests.spark.{module}", str(folder), *arguments])

    def terminate(self) -> None:
        """Send SIGTERM to the driver's Python only, as a service manager does, and wait for all processes to end."""
        os.kill(self.pid, signal.SIGTERM)
        self.wait_for_session()

    def run_to(self, gate: Gate) -> int:
        waiting = super().run_to(gate)
        assert self.batches("offsets") == self.batches("commits") + 1
        return waiting
