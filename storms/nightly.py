"""Runs all storms in sequence, each in a separate process. The remaining time is divided among the remaining storms."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from storms.common.command import Arguments

__all__ = ("main",)

NAME = "nightly"
STORMS = (
    "blobs",
    "proofs",
    "corruption",
    "changes",
    "poison",
    "soak",
    "soak --runtime local",
    "dags",
    "cluster",
    "upgrades",
    "moves",
    "kills --runtime local",
    "kills --runtime local --processes 2 --kills 50",
    "kills",
)
"""The longest ones are last and get the time that the others did not use."""
_ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all storms. Returns 1 if one of them failed."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--storms", nargs="+", choices=STORMS, default=STORMS, help="only these (all)")
    parser.set_defaults(limit=8 * 60)
    options = parser.parse(arguments, {})
    end = None if options.limit is None else time.monotonic() + options.limit * 60
    codes: dict[str, int] = {}
    for number, name in enumerate(options.storms):
        storm, *given = name.split()
        command = [sys.executable, "-m", f"storms.{storm}", *given, "--seed", str(options.seed)]
        if options.results is not None:
            command += ["--results", str(options.results)]
        command += [flag for flag in ("--short", "--again") if getattr(options, flag.removeprefix("--"))]
        if end is not None:
            minutes = max(1.0, (end - time.monotonic()) / 60 / (len(options.storms) - number))
            command += ["--limit", f"{minutes:.1f}"]
        codes[name] = subprocess.run(command, cwd=_ROOT, check=False).returncode
    print("\n".join(f"{name}: {'passed' if code == 0 else f'failed ({code})'}" for name, code in codes.items()))
    return int(any(codes.values()))


if __name__ == "__main__":
    sys.exit(main())
