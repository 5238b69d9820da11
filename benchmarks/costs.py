"""The breakdown of the time per record: source, decode, user function, route, encode, state, and Spark.

Three measurements result in one table, in microseconds of one core per record:

* the plan's stage functions, run in sequence in this process, without Spark, over the same frames: the CPU time of each
  part, level by level (``benchmarks/common/outside.py``);
* the user functions alone, in the plain loop with prepared records: they are contained in the part "process", and
  cannot be measured separately per record without slowing down both;
* a micro-batch on Spark: the rest of the time of both cores is Spark's, including idle time.

A second table lists the functions with the most own time, measured with cProfile, which overstates the cost of calls of
Python functions.
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

from benchmarks.common.machine import machine
from benchmarks.common.outside import OutsideSpark
from benchmarks.common.report import Arguments, Report
from benchmarks.peers.protocol import Outcome, Task, warm_up_for
from dsv2 import ExecutionEnvironment

__all__ = ("main",)

NAME = "costs"
JOBS = ("hot_topics", "running_count", "windows", "pass_through")
"""The jobs with a single source."""
SHORT = {"jobs": ["hot_topics"], "records": 10_000, "batches": 1, "warm_up": 1, "keys": 100}

_CORES = 2
_WARM_UP = 2  # batches in this process, where nothing is compiled
_HOTTEST = 15  # number of listed functions


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), help="only these (all)")
    parser.add_argument("--records", type=int, default=1_000_000, help="records per micro-batch (1,000,000)")
    parser.add_argument("--batches", type=int, default=5, help="measured micro-batches on Spark (5)")
    parser.add_argument("--warm-up", type=int, help="micro-batches for warm-up (4 to 20, by their size)")
    parser.add_argument("--keys", type=int, default=1_000, help="number of keys (1,000)")
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
    """Add both tables of a job."""
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
    """Run the same plan without Spark, including warm-up."""
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(task.parallelism)
    import_module(f"benchmarks.peers.{job}.on_dsv2").pipeline(env, task)
    run = OutsideSpark(env.build_plan())
    for _ in range(_WARM_UP):
        run.run_batch(task.records)
    run.watches.clear()
    return run


def _user_functions(job: str, options: argparse.Namespace) -> float:
    """The seconds of a batch in a plain loop over prepared records."""
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
