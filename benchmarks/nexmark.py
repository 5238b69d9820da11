"""The queries of Nexmark with dsv2 and its peers, in steady state.

Each contestant runs in a separate process (see ``./run bench suite``). A batch is a micro-batch, or as many consecutive
events in Flink. Every contestant generates the same events in the measured time. The numbers and sums of results
are compared, for queries that do not emit updates.

Measurements are stored and not repeated by the next call (unless ``--again`` is given). Contestants take turns, query
by query and round by round.

DuckDB runs the SQL once over all events, without state and micro-batches: a limit. Functions on single records are
compared with Bytewax, which calls the same ones, in one process each.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from statistics import geometric_mean

from benchmarks.common.machine import machine
from benchmarks.common.report import Arguments, Cell, Report
from benchmarks.common.rows import Row, Rows
from benchmarks.jobs.nexmark import QUERIES, updates
from benchmarks.jobs.nexmark_functions import QUERIES as IN_FUNCTIONS
from benchmarks.peers.environments import BYTEWAX_WITH_OWN, FLINK, OWN, Environment, Unavailable
from benchmarks.peers.nexmark.in_sql import QUERIES as IN_SPARK_SQL
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.runner import Failed, run_apart, run_here

__all__ = ("main",)

NAME = "nexmark"
SHORT = {"records": 5_000, "batches": 1, "warm_up": 1, "rounds": 1, "queries": ["q2", "q18"]}


@dataclass(frozen=True)
class Contestant:
    """A program that runs some of the queries."""

    name: str
    program: str
    parallelism: int
    queries: frozenset[str]
    environment: Environment = OWN


ALL = frozenset(QUERIES)
SPARK, LOCAL, FLINK_SQL, SPARK_SQL, DUCKDB = "dsv2 on Spark", "dsv2, local", "Flink SQL", "Spark SQL", "DuckDB"
LOCAL_2 = f"{LOCAL}, 2 processes"
FUNCTIONS, BYTEWAX = "functions, local", "Bytewax"
CONTESTANTS = (
    Contestant(SPARK, "on_dsv2", 2, ALL),
    Contestant(LOCAL, "on_local", 1, ALL),
    Contestant(LOCAL_2, "on_local", 2, ALL),
    Contestant(FLINK_SQL, "Nexmark", 2, ALL - {"q6", "q13"}, FLINK),
    Contestant(SPARK_SQL, "in_sql", 2, frozenset(IN_SPARK_SQL)),
    Contestant(DUCKDB, "in_duckdb", 1, ALL),
    Contestant(FUNCTIONS, "on_functions", 1, frozenset(IN_FUNCTIONS)),
    Contestant(BYTEWAX, "on_bytewax", 1, frozenset(IN_FUNCTIONS), BYTEWAX_WITH_OWN),
)
TARGETS = (
    (SPARK, FLINK_SQL, 1.0, 0.6),
    (SPARK, SPARK_SQL, 1.0, None),
    (LOCAL_2, FLINK_SQL, 1.3, None),
    (FUNCTIONS, BYTEWAX, 1.3, 0.8),
)
"""Contestant, peer, and the least ratio of throughputs: the geometric mean of the queries, and that of each query."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the queries named by command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("queries", nargs="*", metavar="QUERY", help=f"some of {', '.join(QUERIES)} (all)")
    add("--contestants", nargs="+", metavar="NAME", help="only those whose names begin with one of these (all)")
    add("--records", type=int, default=1_000_000, help="events in a batch (1,000,000)")
    add("--batches", type=int, default=2, help="measured batches (2)")
    add("--warm-up", type=int, default=3, help="batches for warm-up (3)")
    add("--rounds", type=int, default=4, help="rounds; each contestant is measured once per round (4)")
    add("--limit", type=float, default=600, metavar="SECONDS", help="time limit of one measurement (600)")
    add("--again", action="store_true", help="also measure what has a result")
    options = parser.parse(arguments, SHORT)
    if unknown := [query for query in options.queries if query not in QUERIES]:
        parser.error(f"there is no query {unknown[0]}; the queries are {', '.join(QUERIES)}")
    rows = Rows(None if options.short else options.results, NAME)
    for query in options.queries or QUERIES:
        rows.measure(options.rounds, [
            partial(_measured, contestant, query, options)
            for contestant in CONTESTANTS
            if _is_wanted(contestant, query, options)
            and (options.again or rows.find(contestant.name, 0, query, options.records) is None)
        ])  # fmt: skip
    report(rows.of_this_machine(), "./run bench nexmark").publish(options.results)
    return 0


def _is_wanted(contestant: Contestant, query: str, options: argparse.Namespace) -> bool:
    named = not options.contestants or contestant.name.startswith(tuple(options.contestants))
    available = contestant.environment.exists() if options.short else True
    return named and available and query in contestant.queries


def _measured(contestant: Contestant, query: str, options: argparse.Namespace) -> Row:
    date, load = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), round(os.getloadavg()[0], 2)
    row = Row(contestant.name, 0, query, options.records, options.records, date=date, load=load)
    task = Task(options.records, options.batches, options.warm_up, 0, "", contestant.parallelism, query)
    try:
        row = _with_outcome(row, _outcome(contestant, task, options))
    except (Unavailable, Failed) as reason:
        if options.short:
            raise
        row = replace(row, missing=str(reason).splitlines()[-1])
    pace = f"{row.pace:,.0f} events/s, {row.results:,} results" if row.seconds else row.missing
    print(f"{query}, {contestant.name}: {pace}", file=sys.stderr)
    return row


def _outcome(contestant: Contestant, task: Task, options: argparse.Namespace) -> Outcome:
    if options.short and contestant.environment == OWN:
        return run_here(NAME, contestant.program, task)
    return run_apart(contestant.environment, NAME, contestant.program, task, options.limit)


def _with_outcome(row: Row, outcome: Outcome) -> Row:
    return replace(
        row,
        seconds=[round(seconds, 4) for seconds in outcome.seconds],
        results=outcome.results,
        checksum=outcome.checksum,
        versions=outcome.versions,
    )


def report(rows: Sequence[Row], command: str) -> Report:
    """Create the report from all measurements of this machine."""
    measured = [row for row in rows if row.seconds]
    dates, loads = sorted(row.date for row in measured), [row.load for row in measured]
    conditions = {
        "date": f"{dates[0]} – {dates[-1]}" if dates else "",
        "command": command,
        **machine(),
        "rounds": ", ".join(map(str, sorted({len(row.paces) for row in measured}))),
        "load average before": f"{min(loads):.2f} – {max(loads):.2f}" if loads else "",
    }
    made = Report(NAME, "Nexmark", conditions)
    for size in sorted({row.size for row in rows}, reverse=True):
        found = {(row.kind, row.contestant): row for row in measured if row.size == size}
        made.table(f"Thousands of events/s, batches of {size:,}", *_table(found))
        for ours, theirs, mean, each in TARGETS:
            _judge(made, found, ours, theirs, mean, each)
    differing = [(query, names) for query in QUERIES if (names := _differing(measured, query))]
    if differing:
        made.table("Different results", ("query", "contestants, results and sums"), differing)
    missing = [(row.kind, row.contestant, row.missing) for row in rows if row.missing]
    if missing:
        made.table("Not measured", ("query", "contestant", "why"), missing)
    return made


def _table(found: dict[tuple[str, str], Row]) -> tuple[tuple[str, ...], list[tuple[Cell, ...]]]:
    names = [contestant.name for contestant in CONTESTANTS]
    pairs = [(ours, theirs) for ours, theirs, *_ in TARGETS]
    header = ("query", *names, *(f"{ours} / {theirs}" for ours, theirs in pairs))
    rows: list[tuple[Cell, ...]] = []
    for query in QUERIES:
        own = {name: found[query, name] for name in names if (query, name) in found}
        paces = [round(own[name].pace / 1000) if name in own else "" for name in names]
        ratios = [own[one].ratios(own[other]).median if one in own and other in own else "" for one, other in pairs]
        if own:
            rows.append((query, *paces, *ratios))
    return header, rows


def _judge(
    made: Report, found: dict[tuple[str, str], Row], ours: str, theirs: str, mean: float, each: float | None
) -> None:
    ratios = {
        query: found[query, ours].ratios(found[query, theirs]).median
        for query in QUERIES
        if (query, ours) in found and (query, theirs) in found
    }
    if not ratios:
        return
    made.at_least(
        f"{ours} in times of {theirs}, geometric mean of {len(ratios)} queries", geometric_mean(ratios.values()), mean
    )
    if each is not None:
        slowest = min(ratios, key=ratios.__getitem__)
        made.at_least(f"the same, slowest query ({slowest})", ratios[slowest], each)


def _differing(rows: Sequence[Row], query: str) -> str:
    """Describe results that differ. Flink's are not counted where its query emits updates."""
    own = [row for row in rows if row.kind == query and row.results]
    results = {(row.size, len(row.seconds), row.results, row.checksum) for row in own}
    if updates(query) or len({(size, rounds) for size, rounds, *_ in results}) == len(results):
        return ""
    return "; ".join(f"{row.contestant}: {row.results:,}, {row.checksum:,}" for row in own)


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import nexmark

    sys.exit(nexmark.main())
