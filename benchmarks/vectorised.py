"""Vectorised functions: event-time windows on Arrow tables against the same on single records.

**The job** is that of the benchmark of windows: a sum per user and window over clicks, one each millisecond, of 100,000
users. A window is half a micro-batch long, so each micro-batch closes two, with a sum for nearly every user.

* *Rows* is what that benchmark runs: a generator source, a generator of watermarks, ``key_by`` and a window with
  ``reduce``.
* *Tables* makes the same clicks in columns (in the ``read`` of a source with splits) and sums in an
  ``ArrowEventTimeProcessFunction``; watermarks, keys and exchanges are the same. The results of a micro-batch come to
  the driver as those of the rows do, but in a table.
* *Combined* is *tables* with ``map_tables`` before ``key_by``, which adds up a million clicks where they are read.
* *Mixed* is *tables* with a function of single records between the sums and the sink, which passes every sum on; the
  results are single records.

All in ``local[2]`` with two subtasks of everything. The results are counted and must agree.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from benchmarks.common import Arguments, Report, conditions, spark_session
from benchmarks.common.contest import WARM_UP, Measured, compare, run_dsv2
from benchmarks.common.tables import GeneratedTables, Numbers
from benchmarks.peers.protocol import Task
from benchmarks.peers.windows.on_dsv2 import sums_of_windows
from dsv2 import ExecutionEnvironment
from dsv2.arrow import (
    ArrowCollector,
    ArrowEventTimeProcessFunction,
    ArrowForeachBatchSink,
    map_tables,
    schema_of,
)
from dsv2.context import Collector, NonPartitionedContext, PartitionedContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.sinks import ForeachBatchSink

__all__ = ("main",)

NAME = "vectorised"
TARGET = 10.0
"""Times the throughput of the version with rows."""

SHORT = {"clicks": 10_000, "users": 1_000, "batches": 1}
_FOLD = 1 << 22  # rows that wait for being added up


class Click(NamedTuple):
    """One each millisecond."""

    user: int
    time: int
    value: int


class Sum(NamedTuple):
    """Of one user in one window, which ``end`` is the end of (ms)."""

    user: int
    end: int
    value: int


class Clicks:
    """The clicks of the benchmark of windows, by their numbers."""

    def __init__(self, users: int) -> None:
        self.users = users

    def __call__(self, index: Numbers) -> pa.Table:
        users = ((index.astype(np.uint64) * np.uint64(2_654_435_769) & np.uint64(0xFFFF_FFFF)) * self.users) >> 32
        return pa.table([users.astype(np.int64), index, np.ones_like(index)], schema_of(Click))


def ends_of_clicks(size: int, clicks: pa.Table) -> pa.Table:
    """Each click as a sum of its own, in its window of ``size`` ms."""
    ends = pc.multiply(pc.add(pc.divide(clicks["time"], size), 1), size)
    return pa.table([clicks["user"], ends, clicks["value"]], schema_of(Sum))


def sums_of_clicks(size: int, clicks: pa.Table) -> pa.Table:
    """The sums of these clicks per user and window."""
    return added_up(ends_of_clicks(size, clicks))


def added_up(rows: pa.Table) -> pa.Table:
    """The sums of sums."""
    sums = rows.group_by(["user", "end"], use_threads=False).aggregate([("value", "sum")])
    return sums.rename_columns(["user", "end", "value"]).cast(schema_of(Sum))


class Sums(ArrowEventTimeProcessFunction[Sum, Sum]):
    """Adds up per user and window, until event time closes the window."""

    def __init__(self) -> None:
        self.sums = schema_of(Sum).empty_table()
        self.waiting: list[pa.Table] = []
        self.rows = 0

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Sum], ctx: PartitionedContext[Sum]) -> None:
        self.waiting.append(batch)
        self.rows += batch.num_rows
        if self.rows >= _FOLD:
            self._add_up()

    def on_event_time_watermark(
        self, timestamp: int, output: ArrowCollector[Sum], ctx: NonPartitionedContext[Sum]
    ) -> None:
        self._add_up()
        closed = pc.less_equal(pc.subtract(self.sums["end"], 1), timestamp)
        output.collect_batch(self.sums.filter(closed))
        self.sums = self.sums.filter(pc.invert(closed))

    def _add_up(self) -> None:
        self.sums = added_up(pa.concat_tables([self.sums, *self.waiting]))
        self.waiting, self.rows = [], 0


def pass_on(record: Sum, output: Collector[Sum], ctx: PartitionedContext[Sum]) -> None:
    """A function of single records."""
    output.collect(record)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments``; returns the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--clicks", type=int, default=10_000_000, help="in a micro-batch (10,000,000)")
    parser.add_argument("--users", type=int, default=100_000, help="keys (100,000)")
    parser.add_argument("--batches", type=int, default=5, help="that are measured, after two to warm up (5)")
    options = parser.parse(arguments, SHORT)
    with spark_session("vectorised benchmark") as spark:
        report = Report(NAME, "Windows on tables and on rows", conditions(spark, NAME, arguments))
        rows = with_rows(spark, options)
        tables = with_tables(spark, options)
        combined = with_tables(spark, options, combined=True)
        mixed = with_tables(spark, options, mixed=True)
    if not rows.total == tables.total == combined.total == mixed.total:
        raise AssertionError(f"{tables.total}, {combined.total} and {mixed.total} sums, {rows.total} expected")
    compare(report, options.clicks, {"rows": rows, "tables": tables, "combined": combined, "mixed": mixed})
    report.at_least("times the throughput of rows", rows.sample.median / combined.sample.median, TARGET)
    report.publish(options.results)
    return 0


def with_rows(spark: SparkSession, options: argparse.Namespace) -> Measured:
    """As the suite's job of windows has it."""
    counts: dict[int, int] = {}
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(2)
    task = Task(options.clicks, options.batches, WARM_UP, options.users)
    sums = sums_of_windows(env, task)
    sums.to_sink(ForeachBatchSink(lambda records, batch_id: counts.update({batch_id: len(records)})))
    return run_dsv2(env, "windows", counts, options.batches)


def with_tables(
    spark: SparkSession, options: argparse.Namespace, *, combined: bool = False, mixed: bool = False
) -> Measured:
    """The same in columns."""
    counts: dict[int, int] = {}
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(2)
    clicks = options.clicks * (WARM_UP + options.batches)
    source = GeneratedTables(Clicks(options.users), Click, clicks, options.clicks)
    generator = EventTimeExtension.new_watermark_generator_builder(attrgetter("time")).build_as_process_function()
    timed = env.from_source(source, "clicks").process(generator).with_uid("times")
    size = options.clicks // 2
    ends = partial(sums_of_clicks if combined else ends_of_clicks, size)
    parts = timed.process(map_tables(ends, Click, Sum)).with_uid("parts")
    sums = parts.key_by(attrgetter("user")).process(Sums()).with_uid("sums")
    if mixed:
        rows = sums.process(pass_on).with_uid("rows")
        rows.to_sink(ForeachBatchSink(lambda records, batch_id: counts.update({batch_id: len(records)})))
    else:
        sums.to_sink(ArrowForeachBatchSink(lambda table, batch_id: counts.update({batch_id: table.num_rows}), Sum))
    return run_dsv2(env, "vectorised", counts, options.batches)


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import vectorised

    sys.exit(vectorised.main())
