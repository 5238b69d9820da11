"""Where each microsecond of a record goes: source, decode, user function, route, encode, state, and Spark.

Three measurements make one table, per record and in microseconds of one core:

* the plan's own stage functions, run one after the other in this process, without Spark, over the same frames: the
  processor time of each part of the work, level by level (``benchmarks/common/outside.py``);
* the user functions alone, by the plain loop, records made before: they are a part of what is called process there, and
  cannot be told apart from it record by record without slowing both down;
* a micro-batch on Spark: what is left of the time of both cores is Spark's, idle times included.

A second table has the functions with most time of their own, by cProfile, which makes calls of Python functions look
dearer than they are.
"""

from __future__ import annotations

import argparse
import cProfile
import re
import statistics
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from types import CodeType

from benchmarks.common.outside import OutsideSpark
from benchmarks.common.report import Arguments, Report
from benchmarks.common.standings import machine
from benchmarks.peers.protocol import Outcome, Task, warm_up_for
from dsv2 import ExecutionEnvironment

__all__ = ("main",)

NAME = "costs"
JOBS = ("hot_topics", "running_count", "windows", "pass_through")
"""With one source each."""
SHORT = {"jobs": ["hot_topics"], "records": 10_000, "batches": 1, "warm_up": 1, "keys": 100}

_CORES = 2
_TO_FILL_UP = 2  # batches of this process, in which nothing is compiled
_HOTTEST = 15  # functions shown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments``; returns the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), help="(all)")
    parser.add_argument("--records", type=int, default=1_000_000, help="in a micro-batch (1,000,000)")
    parser.add_argument("--batches", type=int, default=5, help="on Spark (5)")
    parser.add_argument("--warm-up", type=int, help="micro-batches before those (4 to 20, by their size)")
    parser.add_argument("--keys", type=int, default=1_000, help="(1,000)")
    options = parser.parse(arguments, SHORT)
    conditions = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": f"./run bench {NAME}",
        **machine(),
    }
    report = Report(NAME, "Where the time of a record goes", conditions)
    for job in options.jobs:
        explain(report, job, options)
    report.publish(options.results)
    return 0


def explain(report: Report, job: str, options: argparse.Namespace) -> None:
    """Both tables of a job."""
    warm_up = options.warm_up or warm_up_for(options.records)
    on_spark = Task(options.records, options.batches, warm_up, options.keys, parallelism=_CORES)
    measured: Outcome = import_module(f"benchmarks.peers.{job}.on_dsv2").measure(on_spark)
    total = statistics.median(measured.seconds) * _CORES
    run = _outside_spark(job, on_spark)
    run.run_batch(options.records)
    parts = {(phase, part): seconds for phase, watch in run.watches.items() for part, seconds in watch.seconds.items()}
    functions = _user_functions(job, options)
    micros = 1e6 / options.records
    rows = [(phase, part, seconds * micros) for (phase, part), seconds in sorted(parts.items())]
    rows.append(("Spark", "the rest of both cores, idle times included", (total - sum(parts.values())) * micros))
    shares = [(*row, f"{row[-1] / (total * micros):.1%}") for row in rows]
    shares.append(("all", "", total * micros, "100.0%"))
    shares.append(
        ("user functions", "by themselves, contained in process", functions * micros, f"{functions / total:.1%}")
    )
    report.table(f"{job}: core time per record", ("phase", "part", "µs", "share"), shares)
    profiler = cProfile.Profile()
    profiler.runcall(run.run_batch, options.records)
    hottest = sorted(profiler.getstats(), key=lambda entry: -entry.inlinetime)[:_HOTTEST]
    calls = [(_name_of(entry.code), entry.callcount, entry.inlinetime * micros) for entry in hottest]
    report.table(f"{job}: functions by own time", ("function", "calls", "µs per record"), calls)


def _outside_spark(job: str, task: Task) -> OutsideSpark:
    """A run of the same plan, warm."""
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(task.parallelism)
    import_module(f"benchmarks.peers.{job}.on_dsv2").pipeline(env, task)
    run = OutsideSpark(env.build_plan())
    for _ in range(_TO_FILL_UP):
        run.run_batch(task.records)
    run.watches.clear()
    return run


def _user_functions(job: str, options: argparse.Namespace) -> float:
    """Seconds of a batch in a plain loop over ready records."""
    task = Task(options.records, options.batches, keys=options.keys, mode="ready")
    outcome: Outcome = import_module(f"benchmarks.peers.{job}.plain").measure(task)
    return statistics.median(outcome.seconds)


def _name_of(code: CodeType | str) -> str:
    if isinstance(code, str):
        return re.sub(r" at 0x\w+", "", code)
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})"


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import costs

    sys.exit(costs.main())
