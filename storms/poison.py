"""Poison: invalid records, values and functions, locally and on Spark.

Outcomes:

* right: the job ran to its end, and its output is correct;
* refused: an error names the operator, the callback and the record, or the invalid value;
* opaque: an error that does not;
* wrong: different output or lost records, without an error.

Two special cases run on Spark only. In one, a job with a function that raises is restarted (it fails at the same
record) and restarted again after a repair (nothing is lost). In the other one, a job whose function blocks is stopped.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.common.report import Report
from dsv2 import Collector, Dsv2Error, ExecutionEnvironment, PartitionedContext
from dsv2.errors import UserFunctionError
from dsv2.sinks import FileSink
from dsv2.sources import CollectionSource
from storms.common.command import Arguments, Deadline, conditions
from storms.common.folders import scratch_folder
from storms.common.outcome import Outcome, classify
from storms.common.outputs import read_files
from storms.common.processes import Gate
from storms.common.results import Result, Results
from storms.common.session import new_session
from storms.common.text import one_line
from storms.jobs.poisons import POISONED, POISONS, Fixed, Item, Pass, Poison, Raise, items, own_key

__all__ = ("Cell", "main", "run_poison")

NAME = "poison"
SHORT = {"cases": ["nothing", "raises on one record", "watermark: 2**63", "timestamp: negative", "started again"]}
RUNTIMES = ("local", "spark")
_SECONDS = 120.0
_STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Cell(Result):
    """The outcome of one case on one runtime."""

    case: str
    runtime: str
    wanted: list[str]
    outcome: str
    detail: str = ""

    @property
    def is_sound(self) -> bool:
        """True if the outcome is allowed."""
        return self.outcome in self.wanted


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if the outcome of a case is not allowed."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--cases", nargs="+", metavar="NAME", help="only these (all)")
    options = parser.parse(arguments, SHORT)
    cells = Results(options.results, NAME, Cell, again=options.again)
    deadline = Deadline(options.limit)
    with scratch_folder() as folder:
        spark = new_session(folder)
        for name, run in all_cells(spark, folder, options.cases):
            if name not in cells and not deadline.is_over():
                cell = run()
                cells.add(cell)
                print(f"{cell.name}: {cell.outcome} {cell.detail}", file=sys.stderr)
        spark.stop()
    describe([*cells], options.seed).publish(options.results)
    return int(not all(cell.is_sound for cell in cells))


def all_cells(
    spark: SparkSession, folder: Path, chosen: Sequence[str] | None
) -> Iterator[tuple[str, Callable[[], Cell]]]:
    """Yield the name of each cell and a function that runs it."""
    for number, poison in enumerate(POISONS):
        if chosen and poison.name not in chosen:
            continue
        for runtime in RUNTIMES:
            if runtime == "spark" or not poison.on_spark_only:
                location = folder / f"poison-{number}"
                yield (
                    f"{poison.name}, {runtime}",
                    lambda poison=poison, runtime=runtime, location=location: run_poison(  # type: ignore[misc]
                        poison, runtime, spark, location
                    ),
                )
    for name, special in (("started again", started_again), ("blocks", stopped_while_it_blocks)):
        if not chosen or name in chosen:
            yield f"{name}, spark", lambda special=special: special(spark, folder / "special")  # type: ignore[misc]


def run_poison(poison: Poison, runtime: str, spark: SparkSession, folder: Path) -> Cell:
    """Run one case on one runtime."""
    error: str | None = None
    difference = ""
    try:
        env = ExecutionEnvironment.get_instance(spark=spark) if runtime == "spark" else _local()
        env.set_parallelism(2)
        sink, wanted = poison.build(env)
        env.execute("poison", checkpoint_location=str(folder) if runtime == "spark" else None)
        found = Counter(map(repr, sink.results))
        missing, extra = (wanted - found).total(), (found - wanted).total()
        difference = f"{missing} missing and {extra} extra of {wanted.total()}" if missing or extra else ""
    except Dsv2Error as raised:
        error = str(raised)
    except BaseException as raised:  # an unwrapped exception of any kind is an outcome
        if isinstance(raised, KeyboardInterrupt):
            raise
        error = f"not an error of dsv2: {type(raised).__name__}: {raised}"
    outcome = classify(error, difference, [poison.names])
    if error is not None and error.startswith("not an error of dsv2"):
        outcome = Outcome.OPAQUE
    return _cell(poison.name, runtime, poison.wanted, outcome, error or difference)


def _local() -> ExecutionEnvironment:
    return ExecutionEnvironment.get_instance(runtime="local")


def _cell(case: str, runtime: str, wanted: Sequence[Outcome], outcome: Outcome, detail: str) -> Cell:
    return Cell(f"{case}, {runtime}", case, runtime, [one.value for one in wanted], outcome.value, one_line(detail))


def started_again(spark: SparkSession, folder: Path) -> Cell:
    """Run a function that raises, raises again at the same record after a restart, and is then repaired."""
    failed_at = []
    for function in (Raise, Raise, Fixed):
        env = ExecutionEnvironment.get_instance(spark=spark)
        env.set_parallelism(2)
        stream: Any = env.from_source(CollectionSource(items(), records_per_batch=7)).with_uid("source").key_by(own_key)
        sink = FileSink[Any](f"{folder}-files", schema="key string, number long")
        stream.process(function()).with_uid("poison").to_sink(sink)
        try:
            env.execute("poison", checkpoint_location=f"{folder}-again")
        except UserFunctionError as error:
            failed_at.append(error.record)
    found = read_files(Path(f"{folder}-files"))
    difference = "" if found == Counter(map(tuple, items())) else f"{found.total()} records of {len(items())}"
    if len(failed_at) != 2 or failed_at[0] != failed_at[1] or str(POISONED) not in str(failed_at[0]):
        difference += f" failed at {failed_at}"
    return _cell("started again", "spark", (Outcome.RIGHT,), classify(None, difference, ()), difference)


class Block(Pass):
    """Waits at a gate."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def poison(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        self._gate.pass_through()
        output.collect(record)


def stopped_while_it_blocks(spark: SparkSession, folder: Path) -> Cell:
    """Stop a job whose function blocks."""
    folder.mkdir()
    gate = Gate(folder, "block")
    gate.shut()
    env = ExecutionEnvironment.get_instance(spark=spark)
    stream: Any = env.from_collection(items()).with_uid("source").key_by(own_key)
    stream.process(Block(gate)).with_uid("poison").to_sink(FileSink(f"{folder}/out", schema="key string, number long"))
    job = env.execute_async("poison", checkpoint_location=f"{folder}/checkpoint")
    begun = time.monotonic()
    while gate.waiting is None and time.monotonic() - begun < _SECONDS:
        time.sleep(0.05)
    stopping = threading.Thread(target=job.stop, daemon=True)
    stopping.start()
    stopping.join(_STOP_SECONDS)
    hangs = stopping.is_alive()
    gate.open()
    stopping.join(_SECONDS)
    outcome = Outcome.HANGS if hangs else Outcome.RIGHT
    detail = f"stop() had not returned after {_STOP_SECONDS:.0f} s" if hangs else ""
    return _cell("blocks", "spark", (Outcome.RIGHT, Outcome.NAMED), outcome, detail)


def describe(cells: Sequence[Cell], seed: int) -> Report:
    """Create the report, with the allowed and actual outcomes of every case."""
    report = Report(NAME, "Poison", conditions(NAME, seed))
    counts = Counter((cell.outcome, cell.runtime) for cell in cells)
    rows = [(outcome.value, *(counts[outcome.value, runtime] for runtime in RUNTIMES)) for outcome in Outcome]
    report.table("Cases", ("outcome", *RUNTIMES), rows)
    found = {(cell.case, cell.runtime): cell for cell in cells}
    by_case = []
    for case in dict.fromkeys(cell.case for cell in cells):
        of_case = [cell for cell in cells if cell.case == case]
        outcomes = [found[case, runtime].outcome if (case, runtime) in found else "–" for runtime in RUNTIMES]
        sound = "yes" if all(cell.is_sound for cell in of_case) else "NO"
        by_case.append((case, " or ".join(of_case[0].wanted), *outcomes, sound))
    report.table("By case", ("case", "wanted", *RUNTIMES, "sound"), by_case)
    if bad := [(cell.name, cell.outcome, cell.detail) for cell in cells if not cell.is_sound]:
        report.table("Not sound", ("case", "outcome", "error or difference"), bad)
    report.at_most("cases whose outcome is not sound", len(bad), 0)
    return report


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from storms import poison

    sys.exit(poison.main())
