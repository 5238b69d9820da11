"""Describes the processes of a driver, and checks whether another driver on this machine has ended."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def describe_driver(processes: Sequence[int]) -> dict[str, Any]:
    """Describe this driver as JSON values. ``processes``: The ids of its processes, Python first."""
    return {**_machine(), "processes": [[number, _started(number)] for number in processes]}


def is_gone(driver: dict[str, Any]) -> bool:
    """Return whether it is certain that no process of ``driver``, a result of ``describe_driver``, is still running.

    This can be found out only for drivers on this machine, and only on Linux.
    """
    machine, processes = _machine(), driver.get("processes", [])
    if None in machine.values() or any(driver.get(name) != value for name, value in machine.items()):
        return False
    return bool(processes) and all(_started(number) != started for number, started in processes)


def _machine() -> dict[str, str | None]:
    """Identify this machine, its current boot, and the container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return {"host": socket.gethostname(), "boot": None, "namespace": None}
    return {"host": socket.gethostname(), "boot": boot, "namespace": namespace}


def _started(number: int) -> int | None:
    """Return when a process was started, in clock ticks since boot; None if it is not running."""
    try:
        state, *fields = (
            Path(f"/proc/{number}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])
