"""The command line of a storm."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

__all__ = ("RESULTS", "Arguments", "Deadline", "conditions")

RESULTS = Path(__file__).resolve().parent.parent / "results"


class Arguments(argparse.ArgumentParser):
    """A parser with the options of all storms: ``--short``, ``--seed``, ``--limit``, ``--results`` and ``--again``."""

    def __init__(self, name: str, description: str | None) -> None:
        super().__init__(
            prog=f"./run storm {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        add = self.add_argument
        add("--short", action="store_true", help="the short form, for CI; stores results only if --results is given")
        add("--seed", type=int, default=1, help="the random seed (1)")
        add("--limit", type=float, metavar="MINUTES", help="start nothing new after this time (no limit)")
        add("--results", type=Path, metavar="DIR", help="the directory of results (storms/results)")
        add("--again", action="store_true", help="discard the results of earlier calls")

    def parse(self, arguments: Sequence[str] | None, short: Mapping[str, object]) -> argparse.Namespace:
        """Parse the options. ``short`` has the defaults of ``--short``. From now on, SIGTERM raises ``SystemExit``."""
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        if self.parse_args(arguments).short:
            self.set_defaults(**short)
        else:
            self.set_defaults(results=RESULTS)
        return self.parse_args(arguments)


class Deadline:
    """The time limit of ``--limit``."""

    def __init__(self, minutes: float | None) -> None:
        self._end = None if minutes is None else time.monotonic() + minutes * 60

    def is_over(self) -> bool:
        """Return whether the time limit is reached."""
        return self._end is not None and time.monotonic() >= self._end


def conditions(name: str, seed: int) -> dict[str, str]:
    """The date, machine and versions with which a storm ran."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": f"./run storm {name}",
        "seed": str(seed),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "cpus": str(os.cpu_count()),
        "load average": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
    }
