"""Corruption: a file of each kind in a checkpoint is emptied, truncated, changed, deleted, or replaced by an older one.

A job is killed within a micro-batch. Each cell of the matrix restarts it from a copy of its folder with one damaged
file, with and without Hadoop's checksum files (HDFS and object stores have none), and classifies the outcome:

* right: the job ran to its end, and its output is the oracle's;
* refused: an error names the damaged file, or the operator and the subtask whose state it holds;
* opaque: an error that names neither;
* wrong: different output, without an error.

The files are discovered in the checkpoint, so a new kind of file automatically gets cells.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import product
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.common.report import Report
from dsv2 import Dsv2Error
from storms.common.command import Arguments, Deadline, conditions
from storms.common.damage import DAMAGES, Target, drop_checksums, has_checksum, targets
from storms.common.folders import scratch_folder
from storms.common.outcome import BAD, Outcome, classify
from storms.common.outputs import differences
from storms.common.processes import Gate, JobProcess
from storms.common.results import Result, Results
from storms.common.session import new_session
from storms.common.text import one_line
from storms.jobs import splits_counted

__all__ = ("Cell", "main")

NAME = "corruption"
SHORT = {"layouts": ["blob"], "files": ["offsets/N, newest", "dsv2/reports"], "damages": ["emptied", "older"]}
LAYOUTS = ("blob", "map")
_BATCHES = 5
_SECONDS = 300.0
_STATE = ("State of ", "subtask ")
_RECORD = "dsv2/job"


@dataclass(frozen=True)
class Cell(Result):
    """The outcome of one kind of damage to one file."""

    layout: str
    file: str
    damage: str
    checksums: bool
    outcome: str
    detail: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if a cell is wrong, opaque or hangs."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--layouts", nargs="+", choices=LAYOUTS, default=LAYOUTS, help="state layouts (all)")
    add("--files", nargs="+", metavar="TEXT", help="only kinds of files whose name contains one of these (all)")
    add("--damages", nargs="+", choices=[*DAMAGES], default=[*DAMAGES], help="(all)")
    options = parser.parse(arguments, SHORT)
    cells = Results(options.results, NAME, Cell, again=options.again)
    deadline = Deadline(options.limit)
    with scratch_folder() as folder:
        spark = new_session(folder)
        for layout in options.layouts:
            if deadline.is_over():
                break
            base = stopped_job(folder / layout, layout)
            for cell in run_cells(spark, base, layout, options.damages, options.files, cells):
                cells.add(cell)
                print(f"{cell.name}: {cell.outcome} {cell.detail}", file=sys.stderr)
                if deadline.is_over():
                    break
        spark.stop()
    describe([*cells], options.seed).publish(options.results)
    return int(any(Outcome(cell.outcome) in BAD for cell in cells))


def stopped_job(folder: Path, layout: str) -> Path:
    """Run a job and kill it in its sixth micro-batch or a later one. Returns its folder."""
    folder.mkdir()
    gate = Gate(folder, *splits_counted.GATES)
    with JobProcess(folder, ["-m", "storms.common.launch", splits_counted.__name__, str(folder), layout]) as job:
        job.start()
        job.wait_until(lambda: job.batches("commits") >= _BATCHES)
        gate.shut()
        job.wait_until(lambda: gate.waiting is not None)
    gate.open()
    return folder


def run_cells(
    spark: SparkSession,
    base: Path,
    layout: str,
    damages: Sequence[str],
    files: Sequence[str] | None,
    known: Results[Cell],
) -> Iterator[Cell]:
    """Run the missing cells of one layout, those without checksums first."""
    checkpoint, folder = base / "checkpoint", base.with_name("cell")
    for checksums, target, damage in product((False, True), targets(checkpoint), damages):
        name = f"{layout}: {target.kind}, {damage}{', with .crc' if checksums else ''}"
        if layout == "map" and not target.kind.startswith("state"):
            continue  # these files are the same in both layouts
        if files and not any(text in target.kind for text in files):
            continue
        if name in known or (checksums and not has_checksum(checkpoint, target)):
            continue
        shutil.copytree(base, folder)
        if not checksums:
            drop_checksums(folder / "checkpoint")
        if DAMAGES[damage](folder / "checkpoint", target):
            outcome, detail = restart(spark, folder, layout, target)
            yield Cell(name, layout, target.kind, damage, checksums, outcome.value, detail)
        shutil.rmtree(folder)


def restart(spark: SparkSession, folder: Path, layout: str, target: Target) -> tuple[Outcome, str]:
    """Start the job from its damaged checkpoint. Returns the outcome and its detail."""
    error = None
    try:
        job = splits_counted.start(spark, str(folder), layout)
        if not job.await_termination(timedelta(seconds=_SECONDS)):
            job.stop()
            return Outcome.HANGS, f"still running after {_SECONDS:.0f} s"
    except Dsv2Error as raised:
        error = str(raised)
    except Exception as raised:  # other errors are outcomes as well
        error = f"{type(raised).__name__}: {raised}"
    difference = "" if error else differences(splits_counted.expected(layout), splits_counted.written(folder))
    return classify(error, difference, names_of(target)), one_line(error or difference)


def names_of(target: Target) -> list[Sequence[str]]:
    """The ways in which an error may name a damaged file: its path, the state of a subtask, or that of records."""
    names: list[Sequence[str]] = [[target.file]]
    if target.file.startswith("state"):
        names.append(_STATE)
    elif target.file.startswith(_RECORD):
        names.append([_RECORD])
    return names


def describe(cells: Sequence[Cell], seed: int) -> Report:
    """Create the report, with the matrix and the error of every bad cell."""
    report = Report(NAME, "Damaged checkpoints", conditions(NAME, seed))
    counts = Counter(cell.outcome for cell in cells)
    report.table("Cells", ("outcome", "cells"), [(outcome.value, counts[outcome.value]) for outcome in Outcome])
    header = [f"{damage}{', .crc' if checksums else ''}" for damage in DAMAGES for checksums in (False, True)]
    found = {(cell.layout, cell.file, cell.damage, cell.checksums): cell.outcome for cell in cells}
    rows = [
        (
            f"{layout}: {file}",
            *(found.get((layout, file, damage, sums), "–") for damage in DAMAGES for sums in (False, True)),
        )
        for layout, file in dict.fromkeys((cell.layout, cell.file) for cell in cells)
    ]
    report.table("By file and damage", ("file", *header), rows)
    bad = [(cell.name, cell.outcome, cell.detail) for cell in cells if Outcome(cell.outcome) in BAD]
    if bad:
        report.table("Bad cells", ("cell", "outcome", "error"), bad)
    report.at_most("cells that are wrong, opaque or hang", len(bad), 0)
    return report


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from storms import corruption

    sys.exit(corruption.main())
