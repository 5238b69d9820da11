"""The peak memory of the processes of a Spark session on this machine, sampled."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ("Peaks", "peak_memory", "processes_below")

_PAUSE_SECONDS = 0.05
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Peaks:
    """The most resident memory seen, in bytes: of a Python worker, of the driver's JVM, and of the driver's Python."""

    worker: int = 0
    jvm: int = 0
    driver: int = 0

    def sample(self) -> None:
        """Look at all processes below this one."""
        own = os.getpid()
        self.driver = max(self.driver, _resident(own))
        for process, command in processes_below(own):
            if "java" in command:
                self.jvm = max(self.jvm, _resident(process))
            elif "pyspark" in command:
                self.worker = max(self.worker, _resident(process))


@contextmanager
def peak_memory() -> Iterator[Peaks]:
    """Sample the memory during the block."""
    peaks, ended = Peaks(), threading.Event()

    def watch() -> None:
        while not ended.wait(_PAUSE_SECONDS):
            peaks.sample()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()
        peaks.sample()


def processes_below(ancestor: int) -> Iterator[tuple[int, str]]:
    """Yield the id and the command of each process below ``ancestor``."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            parents[int(entry.name)] = _parent(entry)
    for process in parents:
        above = parents[process]
        while above in parents and above != ancestor:
            above = parents[above]
        if above == ancestor:
            yield process, _command(process)


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):  # it has ended
        return 0


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError):
        return 0
