"""The CPU time of the processes of a Spark session on this machine."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.memory import processes_below

__all__ = ("CpuTimes",)

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class CpuTimes:
    """CPU seconds: of the driver's Python, of the JVM, and of the Python workers and planners."""

    driver: float
    jvm: float
    workers: float

    @staticmethod
    def now() -> CpuTimes:
        """Those of this process and all processes below it, with those of their children that have ended."""
        own = os.getpid()
        by_kind = {"jvm": 0.0, "workers": 0.0}
        for process, command in processes_below(own):
            by_kind["jvm" if "java" in command else "workers"] += _seconds(process)
        return CpuTimes(_seconds(own, ended=False), **by_kind)

    def __sub__(self, other: CpuTimes) -> CpuTimes:
        return CpuTimes(self.driver - other.driver, self.jvm - other.jvm, self.workers - other.workers)


def _seconds(process: int, *, ended: bool = True) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0  # it has ended
    return sum(map(int, fields[11 : 15 if ended else 13])) / _TICKS
