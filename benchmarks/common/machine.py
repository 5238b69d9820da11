"""The machine of a measurement."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ("machine", "processor")


def machine() -> dict[str, str]:
    """The machine and Python version, as conditions of a report."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cpus": str(os.cpu_count()),
    }


def processor() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
