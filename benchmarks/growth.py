"""Growth of the time of a micro-batch: with records, with levels, and with executors.

The job is the running count (``benchmarks/jobs/running_count.py``) with 1,000 keys and two subtasks. With several
levels, several counts follow each other, each after an exchange.

* **records**: micro-batches of 100,000 to 10,000,000 records. The marginal cost of a record (the additional time from
  one size to the next, divided by the additional records) should be constant.
* **levels**: 1 to 6, with the additional time of each level.
* **executors**: one or two executors with one core each, as processes of a cluster on this machine; for the running
  count and for hot topics (``benchmarks/jobs/hot_topics.py``, 1,000 topics).
* **plain loops**: one running count, and two at once in independent processes. Their speed-up is the upper limit for a
  second executor, because cores may share execution units and the clock budget of the machine.

Points are stored individually and measured only once (unless ``--again`` is given).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TypeAlias

from benchmarks.common.machine import machine
from benchmarks.common.measure import batch_seconds, checkpoint, spark_session
from benchmarks.common.report import Arguments, Report
from benchmarks.common.rows import Row, Rows
from benchmarks.jobs.events import Events
from benchmarks.peers.dsv2_job import add_up
from benchmarks.peers.hot_topics.on_dsv2 import pipeline as hot_topics
from benchmarks.peers.protocol import Task, warm_up_for
from benchmarks.peers.running_count import plain
from benchmarks.peers.running_count.on_dsv2 import Count
from dsv2 import ExecutionEnvironment, NonKeyedPartitionStream
from dsv2.sources import DataGeneratorSource
from runtime_spark import SparkRuntime
from runtime_spark.job.query import StreamingJob

__all__ = ("main",)

NAME = "growth"
EXECUTORS, EXECUTORS_OF_HOT_TOPICS = "executors", "executors of hot topics"
LOOPS = "plain loops"
PARTS = ("records", "levels", EXECUTORS, EXECUTORS_OF_HOT_TOPICS, LOOPS)
SHORT = {
    "sizes": [2_000, 4_000],
    "levels": [1, 2],
    "records": 2_000,
    "batches": 1,
    "warm_up": 1,
    "parts": ["records", "levels", LOOPS],
}
LINEAR = 1.1
"""The maximum ratio of the marginal cost of a record or level at large sizes to that at small sizes."""
SCALED = 1.4
"""The minimum ratio of the throughput of two executors to that of one."""

_KEYS = 1_000
_SUBTASKS = 2

Build: TypeAlias = Callable[[ExecutionEnvironment, Task], list[tuple[int, int]]]
"""Builds a pipeline. Returns a list that will contain its results."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="only these (all)")
    sizes = [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000]
    add("--sizes", type=int, nargs="+", default=sizes, help="records per micro-batch (100,000 to 10,000,000)")
    add("--levels", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6], help="numbers of levels (1 to 6)")
    add("--records", type=int, default=1_000_000, help="records per micro-batch for levels, executors (1,000,000)")
    add("--batches", type=int, default=5, help="measured micro-batches (5)")
    add("--warm-up", type=int, help="micro-batches for warm-up (4 to 20, by their size)")
    add("--rounds", type=int, default=1, help="rounds; each point is measured once per round (1)")
    add("--again", action="store_true", help="also measure points that have a result")
    options = parser.parse(arguments, SHORT)
    rows = Rows(None if options.short else options.results, NAME)
    measurements = [
        partial(_row, part, number, options, measured)
        for part, number, measured in _points(options)
        if options.again or rows.find(part, number, "tuple", _records(part, number, options)) is None
    ]
    rows.measure(options.rounds, measurements)
    conditions = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": f"./run bench {NAME}",
        **machine(),
    }
    report = Report(NAME, "How the time of a micro-batch grows", conditions)
    for part in PARTS:
        report_part(report, part, [row for row in rows.of_this_machine() if row.contestant == part])
    report.publish(options.results)
    return 0


def _points(options: argparse.Namespace) -> Iterator[tuple[str, int, Callable[[], list[float]]]]:
    """Yield part, number and a function that measures the point."""

    def measured(job: Build, records: int, master: str = "local[2]") -> Callable[[], list[float]]:
        task = Task(records, options.batches, options.warm_up or warm_up_for(records), _KEYS, parallelism=_SUBTASKS)
        return partial(run, job, task, master)

    if "records" in options.parts:
        for size in options.sizes:
            yield "records", size, measured(partial(counts, 1), size)
    if "levels" in options.parts:
        for levels in options.levels:
            yield "levels", levels, measured(partial(counts, levels), options.records)
    for part, job in ((EXECUTORS, partial(counts, 1)), (EXECUTORS_OF_HOT_TOPICS, hot_topics)):
        if part in options.parts:
            for executors in (1, 2):
                yield part, executors, measured(job, options.records, f"local-cluster[{executors},1,2048]")
    if LOOPS in options.parts:
        for loops in (1, 2):
            yield LOOPS, loops, partial(loops_at_once, loops, options)


def run(job: Build, task: Task, master: str) -> list[float]:
    """Return the seconds of the measured micro-batches."""
    root = str(Path(__file__).resolve().parent.parent)
    settings = {"spark.master": master, "spark.executorEnv.PYTHONPATH": f"{root}{os.pathsep}{os.environ['PYTHONPATH']}"}
    with spark_session("growth benchmark", settings) as spark, checkpoint() as folder:
        env = ExecutionEnvironment.get_instance(SparkRuntime(spark, partitions=_SUBTASKS))
        env.set_parallelism(_SUBTASKS)
        totals = job(env, task)
        query = env.execute_async("growth", checkpoint_location=folder)
        assert isinstance(query, StreamingJob)
        query.result()
        results = sum(number for number, _ in totals)
        assert results == task.total or (job is hot_topics and results)  # the suite checks the results of hot topics
        return batch_seconds(query.query, task.warm_up, task.batches)


def loops_at_once(loops: int, options: argparse.Namespace) -> list[float]:
    """Return the seconds of batches that are divided among processes. The slowest process counts."""
    task = Task(options.records // loops, options.batches, options.warm_up or warm_up_for(options.records), _KEYS)
    with get_context("spawn").Pool(loops) as processes:
        outcomes = processes.map(plain.measure, [task] * loops, chunksize=1)
    return [max(seconds) for seconds in zip(*(outcome.seconds for outcome in outcomes), strict=True)]


def counts(levels: int, env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build a pipeline with several counts in sequence."""
    source = DataGeneratorSource(Events(task.keys, task.kind), count=task.total, records_per_batch=task.records)
    stream: NonKeyedPartitionStream[tuple[int, ...]] = env.from_source(source, "events").with_uid("events")
    for level in range(levels):
        stream = stream.key_by(lambda record: record[0]).process(Count(task.kind)).with_uid(f"level {level + 1}")
    return add_up(stream)


def _records(part: str, number: int, options: argparse.Namespace) -> int:
    return number if part == "records" else int(options.records)


def _row(part: str, number: int, options: argparse.Namespace, measured: Callable[[], list[float]]) -> Row:
    records = _records(part, number, options)
    date, load = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), round(os.getloadavg()[0], 2)
    return Row(part, number, "tuple", records, records, measured(), date=date, load=load)


def report_part(report: Report, part: str, rows: Sequence[Row]) -> None:
    """Add the table of one part, and its verdict."""
    if not rows:
        return
    first = rows[0]
    cells = [
        (
            row.keys,
            round(row.pace),
            round(row.sample.median * 1000),
            row.sample.spread,
            row.pace / first.pace,
            row.load,
        )
        for row in rows
    ]
    header = (part, "records/s", "ms per batch", "spread", f"throughput in times of {first.keys:,}", "load before")
    report.table(f"By {part}", header, cells)
    if part.startswith(EXECUTORS):
        if len(rows) == 2:
            report.at_least(f"two {part} in times of one", rows[1].pace / first.pace, SCALED)
    elif part != LOOPS and len(rows) > 2:
        middle, last = rows[len(rows) // 2], rows[-1]
        further = _slope(middle, last) / _slope(first, middle)
        claim = (
            f"cost of one more of {part} from {middle.keys:,} to {last.keys:,}, in times of that up to {middle.keys:,}"
        )
        report.at_most(claim, further, LINEAR)


def _slope(few: Row, many: Row) -> float:
    return (many.sample.median - few.sample.median) / (many.keys - few.keys)


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import growth

    sys.exit(growth.main())
