"""All jobs with dsv2 and its peers, in one run or in several.

Each contestant runs in a separate process with its own packages (``benchmarks/peers``), which are installed in the
user's cache directory. All contestants do the same work: the number and the sum of their results are compared with
those of the plain loop for the same records.

**Steady state**: a run begins with warm-up batches, in which processes start, code is compiled and state grows. On
Spark, a batch is a micro-batch, including all of Spark's overhead. In other engines, it is a number of consecutive
records, timed where the first function forwards them. The slowest contestants get smaller batches.

**Several runs**: measurements are stored, one row per contestant and setting, and not repeated by the next call (unless
``--again`` is given). The report contains all stored measurements.

**Rounds**: the speed of a shared machine varies, so contestants take turns. A ratio is the median of the ratios of the
rounds, and the report also has their range.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial

from benchmarks.common.report import Arguments
from benchmarks.common.rows import Row, Rows
from benchmarks.common.standings import standings
from benchmarks.peers.environments import OWN, Unavailable
from benchmarks.peers.jobs import JOBS
from benchmarks.peers.protocol import Outcome, Task, warm_up_for
from benchmarks.peers.roster import PLAIN, Contestant, Job
from benchmarks.peers.runner import Failed, run_apart, run_here

__all__ = ("main", "run_job")

NAME = "suite"
SHORT = {"records": 10_000, "batches": 1, "warm_up": 1, "rounds": 1, "keys": [100], "kinds": ["tuple"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the jobs named by command-line ``arguments`` and return the exit code."""
    return _run(NAME, __doc__, None, arguments)


def run_job(name: str, description: str | None, arguments: Sequence[str] | None) -> int:
    """Run one job and return the exit code."""
    return _run(name, description, [name], arguments)


def _run(program: str, description: str | None, jobs: list[str] | None, arguments: Sequence[str] | None) -> int:
    parser = Arguments(program, description)
    add = parser.add_argument
    if jobs is None:
        add("jobs", nargs="*", metavar="JOB", help=f"one of {', '.join(JOBS)} (all)")
    add("--contestants", nargs="+", metavar="NAME", help="only those whose names begin with one of these (all)")
    add("--keys", type=int, nargs="+", help="numbers of keys (those of the job)")
    add("--kinds", nargs="+", choices=("tuple", "dataclass", "dict"), help="kinds of records (those of the job)")
    add("--records", type=int, default=1_000_000, help="maximum number of records in a batch (1,000,000)")
    add("--batches", type=int, default=5, help="measured batches (5)")
    add("--warm-up", type=int, help="batches for warm-up (4 to 20, by their size)")
    add("--limit", type=float, default=1200, metavar="SECONDS", help="time limit of one measurement (1,200)")
    add("--rounds", type=int, default=4, help="rounds; each contestant is measured once per round (4)")
    add("--again", action="store_true", help="also measure what has a result")
    options = parser.parse(arguments, SHORT)
    for name in jobs or options.jobs or JOBS:
        job = JOBS.get(name)
        if job is None:
            parser.error(f"there is no job {name}; the jobs are {', '.join(JOBS)}")
        measure(job, options, f"./run bench suite {name}")
    return 0


def measure(job: Job, options: argparse.Namespace, command: str) -> None:
    """Measure the selected contestants that have no result yet, and publish the report."""
    rows = Rows(None if options.short else options.results, job.name)
    measurements = [
        partial(_measured, job, contestant, task, options)
        for contestant, task in _settings(job, options)
        if options.again
        or not _is_enough(rows.find(contestant.name, task.keys, task.kind, options.records), task, options.rounds)
    ]
    rows.measure(options.rounds, measurements)
    standings(job, rows.all(), command).publish(options.results)


def _settings(job: Job, options: argparse.Namespace) -> Iterator[tuple[Contestant, Task]]:
    kinds, numbers = options.kinds or job.kinds, options.keys or job.keys
    for keys in numbers:
        for kind in kinds if keys == min(numbers) else kinds[:1]:
            for contestant in job.contestants:
                named = not options.contestants or contestant.name.startswith(tuple(options.contestants))
                available = contestant.in_short and contestant.environment.exists() if options.short else True
                if not named or not available or kind not in contestant.kinds:
                    continue
                records, subtasks = contestant.records(options.records, keys), contestant.parallelism
                warm_up = options.warm_up or warm_up_for(records)
                yield (
                    contestant,
                    Task(records, options.batches, warm_up, keys, kind, subtasks, contestant.mode),
                )


def _is_enough(row: Row | None, task: Task, rounds: int) -> bool:
    if row is None:
        return False
    return bool(row.missing) or (row.records == task.records and len(row.seconds) >= task.batches * rounds)


def _measured(job: Job, contestant: Contestant, task: Task, options: argparse.Namespace) -> Row:
    row = _outcome(job, contestant, task, options)
    print(f"{job.name}, {row.contestant}, {row.keys:,} keys, {row.kind}: {_in_short(row)}", file=sys.stderr)
    return row


def _outcome(job: Job, contestant: Contestant, task: Task, options: argparse.Namespace) -> Row:
    date, load = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), round(os.getloadavg()[0], 2)
    row = Row(contestant.name, task.keys, task.kind, options.records, task.records, date=date, load=load)
    try:
        if options.short and contestant.environment == OWN:
            outcome = run_here(job.name, contestant.program, task)
        else:
            outcome = run_apart(contestant.environment, job.name, contestant.program, task, options.limit)
        _check(job, contestant, task, outcome)
    except Unavailable as reason:
        return replace(row, missing=f"not available: {reason}")
    except Failed as reason:
        if options.short:
            raise
        return replace(row, missing=str(reason))
    return replace(
        row,
        seconds=[round(seconds, 4) for seconds in outcome.seconds],
        results=outcome.results,
        checksum=outcome.checksum,
        versions=outcome.versions,
    )


def _check(job: Job, contestant: Contestant, task: Task, outcome: Outcome) -> None:
    """Compare the outcome with that of the plain loop. Raises ``Failed``."""
    number, total = _expected(job, replace(task, parallelism=1, mode=""))
    if outcome.results != number or abs(outcome.checksum - total) > contestant.near * total:
        actual = f"{outcome.results:,} results with the sum {outcome.checksum:,}"
        raise Failed(f"wrong: {actual}, {number:,} with the sum {total:,} expected")


@cache
def _expected(job: Job, task: Task) -> tuple[int, int]:
    plain = next(contestant for contestant in job.contestants if contestant.group == PLAIN)
    outcome = run_here(job.name, plain.program, task)
    return outcome.results, outcome.checksum


def _in_short(row: Row) -> str:
    return f"{row.pace:,.0f} records/s, {row.sample.spread} ms" if row.seconds else row.missing


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import suite

    sys.exit(suite.main())
