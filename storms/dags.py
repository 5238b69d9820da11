"""Random DAGs: graphs of up to three sources and six functions, on three runtimes.

Every graph runs locally, as a Spark streaming query in small micro-batches, and as a Spark batch job. Each run is
checked hop by hop (``tests/property/legality.py``). A third of the graphs have a single legal order of events, so all
events must be equal in all three runs. Many graphs share a job, and all jobs share a session. If a job fails, its
graphs run individually.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from zlib import crc32

from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from benchmarks.common.report import Report
from dsv2 import RuntimeExecutionMode
from dsv2.jobs.handle import JobRuntime
from dsv2.local import LocalRuntime
from runtime_spark import SparkRuntime
from storms.common.command import Arguments, Deadline, conditions
from storms.common.folders import scratch_folder
from storms.common.results import Result, Results
from storms.common.session import new_session
from storms.common.text import one_line
from tests.property.graphs import Graph, graphs
from tests.property.legality import Outcome
from tests.property.runs import check, everything, outcomes_of

__all__ = ("Case", "Chunk", "cases", "found_wrong", "main", "run_chunk")

NAME = "dags"
SHORT = {"graphs": 12, "together": 12}
MODES = (RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH)


@dataclass(frozen=True)
class Case:
    """A graph.

    Attributes:
        graph: The graph.
        records_per_batch: The size of micro-batches. That of the first case of a job applies to the whole job.
        one_order: Whether its events have a single legal order.
    """

    graph: Graph
    records_per_batch: int
    one_order: bool


@dataclass(frozen=True)
class Chunk(Result):
    """The outcomes of the graphs of one job. ``bad``: mode, graph and problem."""

    graphs: int
    one_order: int
    bad: list[list[str]] = field(default_factory=list)
    seconds: float = 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the storm with command-line ``arguments``. Returns 1 if a run of a graph was not correct."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--graphs", type=int, default=2000, help="number of graphs (2,000)")
    add("--together", type=int, default=20, help="graphs that share a job (20)")
    options = parser.parse(arguments, SHORT)
    chunks = Results(options.results, NAME, Chunk, again=options.again)
    drawn = cases(options.graphs, options.seed)
    with scratch_folder() as folder:
        spark = new_session(folder)
        run_missing(spark, drawn, chunks, options)
        spark.stop()
    describe([*chunks], options).publish(options.results)
    return int(any(chunk.bad for chunk in chunks))


def cases(number: int, chosen_seed: int) -> list[Case]:
    """Draw ``number`` graphs from a seed."""
    ordered = -(-number // 3)
    several = _drawn(number - ordered, chosen_seed, one_order=False) + _drawn(ordered, chosen_seed, one_order=True)
    return sorted(several, key=_hash_of)  # mixes graphs with one order and with several


def _drawn(number: int, chosen_seed: int, *, one_order: bool) -> list[Case]:
    found: list[Case] = []

    @seed(chosen_seed)
    @settings(
        max_examples=number,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        verbosity=Verbosity.quiet,
        suppress_health_check=[*HealthCheck],
    )
    @given(graphs(one_order=one_order), st.integers(4, 12))
    def collect(graph: Graph, records_per_batch: int) -> None:
        found.append(Case(graph, records_per_batch, one_order))

    collect()
    return found


def _hash_of(case: Case) -> int:
    """A hash of the case that is the same in every process."""
    return crc32(repr(case).encode())


def run_missing(
    spark: SparkSession, drawn: Sequence[Case], chunks: Results[Chunk], options: argparse.Namespace
) -> None:
    """Run the missing chunks until the time limit."""
    deadline = Deadline(options.limit)
    for start in range(0, len(drawn), options.together):
        name = f"seed {options.seed}, {len(drawn)} graphs, from {start}"
        if name in chunks:
            continue
        if deadline.is_over():
            return
        chunk = run_chunk(spark, name, drawn[start : start + options.together])
        chunks.add(chunk)
        print(f"{name}: {chunk.graphs} graphs, {len(chunk.bad)} bad ({chunk.seconds:.0f} s)", file=sys.stderr)


def run_chunk(spark: SparkSession, name: str, several: Sequence[Case]) -> Chunk:
    """Run the graphs on all runtimes. If their common job fails, run them individually."""
    begun = time.monotonic()
    bad: list[list[str]] = []
    with outcomes_of([case.graph for case in several], LocalRuntime()) as local:
        bad.extend(["LOCAL", repr(case), what] for case, what in found_wrong(several, local))
        for mode in MODES:
            try:
                bad.extend(run_together(SparkRuntime(spark), several, mode, local))
            except Exception as error:  # individual runs show which graph fails
                bad.extend(_one_by_one(spark, several, mode, error))
    ordered = sum(case.one_order for case in several)
    return Chunk(name, len(several), ordered, bad, round(time.monotonic() - begun, 1))


def run_together(
    runtime: JobRuntime, several: Sequence[Case], mode: RuntimeExecutionMode, local: Sequence[Outcome]
) -> list[list[str]]:
    """Run the graphs in one job. Returns the problems, including differences from the ``local`` outcomes."""
    streaming = mode is RuntimeExecutionMode.STREAMING
    size = several[0].records_per_batch if streaming else None
    needs_checkpoint = streaming and isinstance(runtime, SparkRuntime)
    every = [case.graph for case in several]
    with outcomes_of(every, runtime, mode, size, needs_checkpoint=needs_checkpoint) as outcomes:
        return [[mode.name, repr(case), what] for case, what in found_wrong(several, outcomes, local)]


def found_wrong(
    several: Sequence[Case], outcomes: Sequence[Outcome], local: Sequence[Outcome] | None = None
) -> Iterator[tuple[Case, str]]:
    """Yield the graphs with a problem: an outcome that is not legal, or that differs from the local one."""
    for number, (case, outcome) in enumerate(zip(several, outcomes, strict=True)):
        try:
            check(outcome)
        except AssertionError as error:
            yield case, f"not legal: {error}"
            continue
        if case.one_order and local is not None and everything(outcome) != everything(local[number]):
            yield case, "records or their order differ from the local run"


def _one_by_one(
    spark: SparkSession, several: Sequence[Case], mode: RuntimeExecutionMode, error: Exception
) -> Iterator[list[str]]:
    found = False
    for case in several:
        try:
            with outcomes_of([case.graph], LocalRuntime()) as local:
                bad = run_together(SparkRuntime(spark), [case], mode, local)
        except Exception as own:
            bad = [[mode.name, repr(case), f"{type(own).__name__}: {own}"]]
        found = found or bool(bad)
        yield from bad
    if not found:
        yield [mode.name, f"{len(several)} graphs together", f"{type(error).__name__}: {error}"]


def describe(chunks: Sequence[Chunk], options: argparse.Namespace) -> Report:
    """Create the report."""
    report = Report(NAME, "Random DAGs", conditions(NAME, options.seed))
    total = sum(chunk.graphs for chunk in chunks)
    bad = [row for chunk in chunks for row in chunk.bad]
    by_mode = Counter(mode for mode, *_ in bad)
    ordered = sum(chunk.one_order for chunk in chunks)
    runs = ("LOCAL", *(mode.name for mode in MODES))
    report.table(
        "Graphs", ("run", "graphs", "of one order", "bad"), [(run, total, ordered, by_mode[run]) for run in runs]
    )
    if bad:
        report.table(
            "Bad runs", ("mode", "problem", "graph"), [(mode, one_line(what), graph) for mode, graph, what in bad]
        )
    report.at_least("graphs", total, options.graphs)
    report.at_most("bad runs", len(bad), 0)
    return report


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from storms import dags

    sys.exit(dags.main())
