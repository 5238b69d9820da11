"""Who a driver is, and whether another one on this machine is gone."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ("describe_driver", "is_gone")


def describe_driver(processes: Sequence[int]) -> dict[str, Any]:
    """This driver as JSON values. ``processes``: the ids of its processes, that of Python first."""
    return {**_machine(), "processes": [[number, _started(number)] for number in processes]}


def is_gone(driver: dict[str, Any]) -> bool:
    """Whether it is certain that no process of ``driver``, as it described itself, runs any more.

    That can be seen only of drivers on this machine, on Linux.
    """
    machine, processes = _machine(), driver.get("processes", [])
    if None in machine.values() or any(driver.get(name) != value for name, value in machine.items()):
        return False
    return bool(processes) and all(_started(number) != started for number, started in processes)


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
