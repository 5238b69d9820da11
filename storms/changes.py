"""Changed restarts: a program is changed between two starts from one checkpoint.

The program (``storms/jobs/changing``) is stopped in its third micro-batch. Each cell restarts it from a copy of its
folder, with one change of its source code. Outcomes:

* right: it continued, and the output of every operator equals the oracle's, including operators with migrated state;
* refused: an error names the operator, the state, the class or the path that changed;
* warned: it continued with different output, and a warning names the change;
* opaque: an error that does not name the change;
* wrong: it continued with different output, silently.

The allowed outcomes of each change are in ``storms/common/changes.py``.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.report import Report
from storms.common.changes import CHANGES, Change
from storms.common.command import Arguments, Deadline, conditions
from storms.common.folders import scratch_folder
from storms.common.outcome import Outcome, classify
from storms.common.outputs import Output, differences
from storms.common.processes import Gate, JobOverError, JobProcess
from storms.common.results import Result, Results
from storms.common.text import last_error, one_line
from storms.jobs import changing
from storms.jobs.changing.lines import expected, written

__all__ = ("Cell", "edit", "main", "process_of", "restart", "stopped_program")

NAME = "changes"
SHORT = {"changes": ["nothing", "key selector"]}
_SECONDS = 240.0
_REFUSALS = ("IncompatibleCheckpointError: ", "CorruptDataError: ", "ConfigurationError: ", "PlanError: ")
"""The errors that report a program that does not match its checkpoint. Errors of user code are not among them."""


@dataclass(frozen=True)
class Cell(Result):
    """The outcome of one change. ``name``: the name of the change."""

    outcome: str
    detail: str = ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if the outcome of a change is not allowed."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--changes", nargs="+", metavar="NAME", help="only these (all)")
    options = parser.parse(arguments, SHORT)
    cells = Results(options.results, NAME, Cell, again=options.again)
    deadline = Deadline(options.limit)
    chosen = [change for change in CHANGES if not options.changes or change.name in options.changes]
    missing = [change for change in chosen if change.name not in cells]
    with scratch_folder() as folder:
        base = stopped_program(folder / "base") if missing else folder
        for change in missing:
            if deadline.is_over():
                break
            cell = restart(base, folder / "cell", change)
            cells.add(cell)
            print(f"{cell.name}: {cell.outcome} {cell.detail}", file=sys.stderr)
    found = {cell.name: cell for cell in cells}
    describe(found, options.seed).publish(options.results)
    return int(any(change.name in found and not is_sound(change, found[change.name]) for change in CHANGES))


def is_sound(change: Change, cell: Cell) -> bool:
    """Return whether the outcome is allowed."""
    return Outcome(cell.outcome) in change.wanted


def stopped_program(folder: Path) -> Path:
    """Run the program until its third micro-batch and kill it. Returns its folder."""
    folder.mkdir()
    shutil.copytree(Path(changing.__file__).parent, folder / "changing")
    gate = Gate(folder, "stop")
    gate.shut()
    with process_of(folder) as job:
        job.start()
        job.wait_until(lambda: gate.waiting is not None)
    gate.open()
    return folder


def process_of(folder: Path, checkpoint: str = "checkpoint") -> JobProcess:
    """The process of the program in ``folder``."""
    command = ["-m", "storms.common.launch", "changing.program", str(folder), checkpoint]
    return JobProcess(folder, command, path=folder)


def restart(base: Path, folder: Path, change: Change, wanted: Output | None = None) -> Cell:
    """Restart a copy of ``base`` with ``change``. ``wanted``: the expected output (default: the oracle's)."""
    shutil.copytree(base, folder)
    try:
        edit(folder / "changing/program.py", change.edits)
        edit(folder / "changing/helper.py", change.helper)
        if change.prepare is not None:
            change.prepare(folder)
        outcome, detail = _outcome(folder, change, wanted or expected())
        return Cell(change.name, outcome.value, one_line(detail))
    finally:
        shutil.rmtree(folder)


def _outcome(folder: Path, change: Change, wanted: Output) -> tuple[Outcome, str]:
    with process_of(folder, change.checkpoint) as job:
        job.log_file.unlink()
        job.start()
        try:
            code = job.wait(_SECONDS)
        except JobOverError as error:
            return Outcome.HANGS, str(error)
    log = job.log_file.read_text(errors="replace")
    if code != 0:
        message = last_error(log)
        return classify(message, "", [[kind, name] for kind in _REFUSALS for name in change.names]), message
    difference = differences(wanted, written(folder))
    outcome = classify(None, difference, ())
    if outcome is Outcome.WRONG and _is_warned(log, change.names):
        outcome = Outcome.WARNED
    return outcome, difference


def _is_warned(log: str, names: Sequence[str]) -> bool:
    return any("WARNING" in line.upper() and name in line for line in log.splitlines() for name in names)


def edit(file: Path, edits: Sequence[tuple[str, str]]) -> None:
    """Replace text of ``file``. Raises ``ValueError`` if the file does not contain it."""
    text = file.read_text()
    for old, new in edits:
        if old not in text:
            raise ValueError(f"{file.name} does not contain {old!r}")
        text = text.replace(old, new)
    file.write_text(text)


def describe(found: dict[str, Cell], seed: int) -> Report:
    """Create the report, with the allowed and actual outcome of every change."""
    report = Report(NAME, "Changed restarts", conditions(NAME, seed))
    counts = Counter(cell.outcome for cell in found.values())
    report.table("Changes", ("outcome", "changes"), [(outcome.value, counts[outcome.value]) for outcome in Outcome])
    rows, bad = [], []
    for change in CHANGES:
        if (cell := found.get(change.name)) is None:
            continue
        sound = is_sound(change, cell)
        wanted = " or ".join(outcome.value for outcome in change.wanted)
        rows.append((change.name, wanted, cell.outcome, "yes" if sound else "NO"))
        if not sound:
            bad.append((change.name, cell.outcome, cell.detail))
    report.table("By change", ("change", "wanted", "outcome", "sound"), rows)
    if bad:
        report.table("Not sound", ("change", "outcome", "error or difference"), bad)
    report.at_most("changes whose outcome is not sound", len(bad), 0)
    return report


if __name__ == "__main__":
    # Run the importable module, not this copy of it, as the other storms do.
    from storms import changes

    sys.exit(changes.main())
