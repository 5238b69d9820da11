"""A job with the files of a Spark job: ``python -m tests.storms.toy MODULE FOLDER SINK``.

``SINK`` is "exactly-once" or "careless". A careless one adds the records of a repeated micro-batch again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from storms.common.outputs import Output, read_files
from storms.common.processes import Gate

GATES = ("gate",)
SINKS = ("out",)
BATCHES = 16
PER_BATCH = 10
PAUSE_SECONDS = 0.001
LOOKS = 2
"""The number of looks for which each step waits: the first one may have begun before it."""


def look(folder: Path) -> bool:
    """Let the job know that somebody has looked at its files in vain. Returns False."""
    (folder / "looked").touch()
    return False


def let_go(folder: Path) -> None:
    """Let the job continue without a look at its files."""
    (folder / "free").touch()


def step(file: Path, folder: Path) -> None:
    """Make a file, and wait until a storm has looked at it, which may kill the job."""
    file.touch()
    for _ in range(LOOKS):
        (folder / "looked").unlink(missing_ok=True)
        while not (folder / "looked").exists() and not (folder / "free").exists():
            time.sleep(PAUSE_SECONDS)


def run(folder: Path, sink: str) -> None:
    """Run the micro-batches that are not committed."""
    checkpoint = folder / "checkpoint"
    for place in ("dsv2/job", "offsets", "commits", "state/0/0"):
        (checkpoint / place).mkdir(parents=True, exist_ok=True)
    step(checkpoint / "dsv2/job/0.json", folder)
    (checkpoint / "metadata").touch()
    done = max((int(file.name) for file in (checkpoint / "commits").iterdir()), default=-1)
    for batch in range(done + 1, BATCHES):
        step(checkpoint / f"offsets/{batch}", folder)
        Gate(folder, "gate").pass_through()
        step(checkpoint / f"state/0/0/{batch + 1}.delta", folder)
        name = "part" if sink == "exactly-once" else f"part-{os.getpid()}"
        step(write(folder / "out", f"{batch:010}-{name}", range(batch * PER_BATCH, (batch + 1) * PER_BATCH)), folder)
        step(checkpoint / f"commits/{batch}", folder)


def write(folder: Path, name: str, numbers: range) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / ".partial"
    partial.write_text("".join(f"{json.dumps({'number': number})}\n" for number in numbers))
    return partial.rename(folder / f"{name}.json")


def expected(sink: str = "") -> Output:
    return {"out": Counter((number,) for number in range(BATCHES * PER_BATCH))}


def written(folder: Path, first_batch: int) -> Output:
    return {"out": read_files(folder / "out", "json")}


if __name__ == "__main__":
    run(Path(sys.argv[2]), sys.argv[3])
