"""Who a driver is, and whether another one on this machine still runs."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

__all__ = ("Life", "describe_driver", "life_of")


class Life(Enum):
    """What can be known from here of another driver."""

    RUNS = "runs"
    GONE = "gone"
    UNKNOWN = "unknown"


def describe_driver(processes: Sequence[int]) -> dict[str, Any]:
    """This driver as JSON values. ``processes``: the ids of its processes, that of Python first."""
    return {**_machine(), "processes": [[number, _started(number)] for number in processes]}


def life_of(driver: dict[str, Any]) -> Life:
    """Whether ``driver``, as it described itself, still runs. Known only of drivers on this machine, on Linux.

    A driver is gone when all of its processes are. When only Python is, the others are about to end.
    """
    machine = _machine()
    if None in machine.values() or any(driver.get(name) != value for name, value in machine.items()):
        return Life.UNKNOWN
    run = [started is not None and _started(number) == started for number, started in driver.get("processes", [])]
    if not run:
        return Life.UNKNOWN
    if run[0]:
        return Life.RUNS
    return Life.UNKNOWN if any(run) else Life.GONE


def _machine() -> dict[str, str | None]:
    """What tells this machine, since it was started, from others; and containers on it from each other."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return {"host": socket.gethostname(), "boot": None, "namespace": None}
    return {"host": socket.gethostname(), "boot": boot, "namespace": namespace}


def _started(number: int) -> int | None:
    """When a process was started, in ticks since the machine was; None if it does not run (any more)."""
    try:
        state, *fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])
