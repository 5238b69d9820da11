"""Blobs: other processes read frames and state whose bytes are changed at random, with a valid checksum.

Reading must end with data or with ``CorruptDataError``: no other error, no crash, no execution of foreign code, no open
file or socket, and bounded memory. The processes run ``tests/hostile.py``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.common.report import Report
from storms.common.command import Arguments, Deadline, conditions
from storms.common.results import Result, Results
from storms.common.text import one_line

__all__ = ("Chunk", "main", "run_chunk")

NAME = "blobs"
SHORT = {"blobs": 10_000}
_CHUNK = 50_000
_MEGABYTES = 500
_SECONDS = 10.0
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Chunk(Result):
    """The outcomes of the blobs of one process. ``bad``: the outcomes that are not allowed."""

    blobs: int
    decoded: int = 0
    refused: int = 0
    megabytes: int = 0
    slowest_seconds: float = 0.0
    bad: list[str] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if a blob had an outcome that is not allowed."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--blobs", type=int, default=1_000_000, help="number of blobs (1,000,000)")
    options = parser.parse(arguments, SHORT)
    chunks = Results(options.results, NAME, Chunk, again=options.again)
    deadline = Deadline(options.limit)
    for number, start in enumerate(range(0, options.blobs, _CHUNK)):
        count = min(_CHUNK, options.blobs - start)
        name = f"seed {options.seed}, {count} blobs, process {number}"
        if name not in chunks and not deadline.is_over():
            chunk = run_chunk(name, options.seed * 1_000_000 + number, count)
            chunks.add(chunk)
            print(f"{name}: {chunk.decoded} decoded, {chunk.refused} refused, {len(chunk.bad)} bad", file=sys.stderr)
    describe([*chunks], options).publish(options.results)
    return int(any(chunk.bad for chunk in chunks))


def run_chunk(name: str, seed: int, count: int) -> Chunk:
    """Read ``count`` blobs, generated from ``seed``."""
    command = [sys.executable, "-m", "tests.hostile", str(seed), str(count)]
    run = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        return Chunk(name, count, bad=[f"the process ended with {run.returncode}: {one_line(run.stderr[-500:])}"])
    found = json.loads(run.stdout)
    outcomes: dict[str, int] = found["outcomes"]
    bad = [f"{outcome} ({n} times)" for outcome, n in outcomes.items() if outcome not in ("decoded", "refused")]
    bad += [f"{what}: {value}" for what in ("events", "fired") for value in sorted(set(found[what]))]
    if found["megabytes"] > _MEGABYTES:
        bad.append(f"{found['megabytes']} MB of memory")
    if found["slowest_seconds"] > _SECONDS:
        bad.append(f"{found['slowest_seconds']} s for one blob")
    decoded, refused = outcomes.get("decoded", 0), outcomes.get("refused", 0)
    return Chunk(name, count, decoded, refused, found["megabytes"], found["slowest_seconds"], bad)


def describe(chunks: Sequence[Chunk], options: argparse.Namespace) -> Report:
    """Create the report."""
    report = Report(NAME, "Blobs", conditions(NAME, options.seed))
    done = sum(chunk.blobs for chunk in chunks)
    report.table(
        "Outcomes",
        ("blobs", "decoded", "refused", "bad", "MB at most", "seconds at most"),
        [
            [
                f"{done:,} of {options.blobs:,}",
                f"{sum(chunk.decoded for chunk in chunks):,}",
                f"{sum(chunk.refused for chunk in chunks):,}",
                sum(len(chunk.bad) for chunk in chunks),
                max((chunk.megabytes for chunk in chunks), default=0),
                max((chunk.slowest_seconds for chunk in chunks), default=0.0),
            ]
        ],
    )
    bad = [(chunk.name, what) for chunk in chunks for what in chunk.bad]
    if bad:
        report.table("Bad outcomes", ("process", "outcome"), bad)
    report.at_least("blobs", done, options.blobs)
    report.at_most("bad outcomes", len(bad), 0)
    return report


if __name__ == "__main__":
    sys.exit(main())
