"""The fixed cost of a micro-batch: plans of one, two and three levels compared with hand-written Spark queries.

All queries count per key: 100 records per micro-batch with 20 keys, in two partitions of ``local[2]``. A level is a
keyed function that keeps a count per key in a field and emits ``(key, count)``; the next level counts these by key.

The hand-written queries have the same source, and a sink that collects on the driver like that of the plans:

* *per key*, the baseline: one ``applyInPandasWithState`` over ``groupBy("key")``, with a count as the state of each of
  the 20 groups;
* *1, 2 and 3 stages*, the strongest competitors, one for each plan: several ``applyInPandasWithState`` in sequence. Its
  two groups are hash buckets, one per partition, which keep the counts of their keys as bytes. This is what a plan does
  internally, with less work: a stage emits one row per key, a level one record per input record. Their time is Spark's.

There are two sources. Spark's source reads Parquet files, one per micro-batch; plans read it through
``from_dataframe``. The Python source is ``DataGeneratorSource`` in plans, and a minimal ``DataSourceStreamReader`` in
hand-written queries. There are also two kinds of sessions: with Spark's default settings, and with the settings that
the project recommends, which then apply to the hand-written queries as well. (Plans set most of them themselves.)

The queries run in turn, each with a new checkpoint, and so do the sessions; the first round is for warm-up. Finally,
the plan with two levels runs once more to measure the project's own code in the driver, in the planner of the source
and in the workers.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from benchmarks.common import Arguments, Report, Sample, batch_progress, checkpoint, conditions, own_time, spark_session
from benchmarks.common.count_queries import (
    RECORDS,
    Run,
    Source,
    by_hand_in_stages,
    by_hand_per_key,
    from_files,
    from_python,
    plan_of,
    write_files,
)
from runtime_spark import SESSION_SETTINGS

__all__ = ("main",)

NAME = "batch_overhead"
LEVELS = (1, 2, 3)
BASELINE = "by hand, per key"
SPARKS, OURS = "Spark's settings", "the project's settings"
SOURCES = ("source of Spark's own", "source in Python")
MOST_TIMES = 1.3
"""The maximum ratio of the time of a plan with two levels to that of the hand-written query."""
MOST_OWN_MS = 30
"""The maximum time of the project's own code in a micro-batch, in ms."""
SHORT = {"levels": (2,), "rounds": 1, "skip": 0, "warm_up": 1, "batches": 1}

_TARGET_LEVELS = 2
_PHASES = ("latestOffset", "walCommit", "queryPlanning", "getBatch", "addBatch", "commitOffsets")

Measured = dict[tuple[str, str, str], list[StreamingQueryProgress]]
"""The progress of micro-batches by session, source and query."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--levels", type=int, nargs="+", default=LEVELS, help="levels of the plans (1 2 3)")
    parser.add_argument("--rounds", type=int, default=4, help="measured rounds; every query runs once in each (4)")
    parser.add_argument("--skip", type=int, default=1, help="rounds for warm-up before (1)")
    # A query's first micro-batches compile code and open state stores.
    parser.add_argument("--warm-up", type=int, default=3, help="micro-batches of a query before the measured ones (3)")
    parser.add_argument("--batches", type=int, default=10, help="measured micro-batches of a query (10)")
    options = parser.parse(arguments, SHORT)
    measured: Measured = defaultdict(list)
    with TemporaryDirectory() as files:
        write_files(files, options.warm_up + options.batches)
        report = Report(NAME, "The overhead of a micro-batch", {})
        for turn in range(options.skip + options.rounds):
            for session, settings in ((SPARKS, {}), (OURS, SESSION_SETTINGS)):
                with spark_session("batch overhead benchmark", settings) as spark:
                    report.conditions = report.conditions or conditions(spark, NAME, arguments)
                    found = _measure(spark, files, options, tuned=session == OURS)
                if turn >= options.skip:
                    for (source, name), progress in found.items():
                        measured[session, source, name] += progress
    for source in SOURCES:
        _compare(report, source, options.levels, measured)
    _report_own_time(report, options)
    report.publish(options.results)
    return 0


def _sources(spark: SparkSession, files: str, options: argparse.Namespace) -> dict[str, Source]:
    return dict(
        zip(SOURCES, (from_files(spark, files), from_python(spark, options.warm_up + options.batches)), strict=True)
    )


def _by_hand_queries(source: Source, numbers: Sequence[int], *, tuned: bool) -> dict[str, Run]:
    stages = {_by_hand(stages): by_hand_in_stages(source, stages, tuned=tuned) for stages in numbers}
    return {BASELINE: by_hand_per_key(source, tuned=tuned), **stages}


def _plans(spark: SparkSession, source: Source, numbers: Sequence[int]) -> dict[str, Run]:
    return {_plan(levels): plan_of(spark, source, levels) for levels in numbers}


def _by_hand(stages: int) -> str:
    return f"by hand, {stages} stage{'s' if stages > 1 else ''}"


def _plan(levels: int) -> str:
    return f"plan, {levels} level{'s' if levels > 1 else ''}"


def _measure(
    spark: SparkSession, files: str, options: argparse.Namespace, *, tuned: bool
) -> dict[tuple[str, str], list[StreamingQueryProgress]]:
    """Run every query once."""
    sources = _sources(spark, files, options)
    # Plans run last: their effect on the session's workers (``forget_modules``) would speed up the other queries.
    runs = {
        (source, name): run
        for queries in (
            {source: _by_hand_queries(records, options.levels, tuned=tuned) for source, records in sources.items()},
            {source: _plans(spark, records, options.levels) for source, records in sources.items()},
        )
        for source, of_source in queries.items()
        for name, run in of_source.items()
    }
    found = {}
    for key, run in runs.items():
        with checkpoint() as folder:
            found[key] = batch_progress(run(folder), options.warm_up, options.batches)
    return found


def _compare(report: Report, source: str, numbers: Sequence[int], measured: Measured) -> None:
    title = f"{source[0].upper()}{source[1:]}"
    samples = {
        (session, name): Sample.of(batch.durationMs["triggerExecution"] / 1000 for batch in batches)
        for (session, where, name), batches in measured.items()
        if where == source
    }
    bases = {session: samples[session, BASELINE].median for session in (SPARKS, OURS)}
    for session in (SPARKS, OURS):
        rows: list[tuple[str | int | float, ...]] = [
            (
                name,
                round(sample.median * 1000),
                sample.spread,
                *(sample.median / base for base in bases.values()),
                len(sample.seconds),
            )
            for (where, name), sample in samples.items()
            if where == session
        ]
        header = ("query", "median ms", "spread", *(f"times {BASELINE}, {kind}" for kind in bases), "batches")
        report.table(f"{title}, {session}: {RECORDS} records a micro-batch", header, rows)
    _report_pairs(report, title, numbers, samples)
    ours = {name: batches for (*where, name), batches in measured.items() if where == [OURS, source]}
    _report_phases(report, title, ours)
    if _TARGET_LEVELS in numbers:
        plan = samples[OURS, _plan(_TARGET_LEVELS)].median
        for session, base in bases.items():
            report.at_most(f"{source}: {_plan(_TARGET_LEVELS)}, beside by hand with {session}", plan / base, MOST_TIMES)


def _report_pairs(report: Report, title: str, numbers: Sequence[int], samples: dict[tuple[str, str], Sample]) -> None:
    pairs = {n: (samples[OURS, _plan(n)].median, samples[OURS, _by_hand(n)].median) for n in numbers}
    rows = [(n, round(plan * 1000), round(by_hand * 1000), plan / by_hand) for n, (plan, by_hand) in pairs.items()]
    header = ("levels or stages", "plan ms", "by hand ms", "plan / by hand")
    report.table(f"{title}, {OURS}: plans beside as many stages by hand", header, rows)


def _report_phases(report: Report, title: str, queries: dict[str, list[StreamingQueryProgress]]) -> None:
    rows: list[tuple[str | int | float, ...]] = [
        (name, *(round(statistics.median(batch.durationMs.get(phase, 0) for batch in batches)) for phase in _PHASES))
        for name, batches in queries.items()
    ]
    report.table(f"{title}, {OURS}: Spark's phases of a micro-batch, median ms", ("query", *_PHASES), rows)


def _report_own_time(report: Report, options: argparse.Namespace) -> None:
    with TemporaryDirectory() as times:
        settings = {**SESSION_SETTINGS, **own_time.settings(times)}
        with spark_session("own time", settings) as spark, own_time.watching(times), checkpoint() as folder:
            source = from_python(spark, options.warm_up + options.batches)
            batches = batch_progress(plan_of(spark, source, _TARGET_LEVELS)(folder), options.warm_up, options.batches)
        parts = own_time.milliseconds(times, [_span(batch) for batch in batches])
    total = sum(parts.values())
    rows = [*((part, took) for part, took in parts.items()), ("all", total)]
    title = f"The project's own code in a micro-batch, all subtasks added up: {_plan(_TARGET_LEVELS)}, {SOURCES[1]}"
    report.table(title, ("part", "ms"), rows)
    report.at_most("the project's own code, ms in a micro-batch", total, MOST_OWN_MS)


def _span(batch: StreamingQueryProgress) -> tuple[float, float]:
    began = datetime.fromisoformat(batch.timestamp).timestamp()
    return began, began + batch.durationMs["triggerExecution"] / 1000


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import batch_overhead

    sys.exit(batch_overhead.main())
