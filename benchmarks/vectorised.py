"""Vectorised functions: event-time windows on Arrow tables compared with windows on single records.

**The job** is that of the windows benchmark: a sum per user and window over the clicks of 100,000 users, one click per
millisecond. A window covers half a micro-batch, so each micro-batch fires two windows, with sums for nearly all users.

* *Rows* is the pipeline of that benchmark: a generator source, a watermark generator, ``key_by`` and a window with
  ``reduce``.
* *Tables* generates the same clicks in columns (in the ``read`` of a source with splits) and sums them in an
  ``ArrowEventTimeProcessFunction``. Watermarks, keys and exchanges are the same. The results of a micro-batch are sent
  to the driver as a table.
* *Combined* is *tables* with ``map_tables`` before ``key_by``, which pre-aggregates a million clicks in the source.
* *Mixed* is *tables* with a function of single records between the sums and the sink, which forwards every sum. Its
  results are single records.

Everything runs in ``local[2]`` with two subtasks per operator. The numbers of results must be equal.
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
from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.arrow import (
    ArrowCollector,
    ArrowEventTimeProcessFunction,
    ArrowForeachBatchSink,
    map_tables,
    schema_of,
)
from dsv2.extension.event_time import EventTimeExtension
from dsv2.sinks import ForeachBatchSink

__all__ = ("main",)

NAME = "vectorised"
TARGET = 10.0
"""The minimum ratio to the throughput of the variant with rows."""

SHORT = {"clicks": 10_000, "users": 1_000, "batches": 1}
_FOLD = 1 << 22  # the maximum number of rows that are not yet added up


class Click(NamedTuple):
    """A click. There is one per millisecond."""

    user: int
    time: int
    value: int


class Sum(NamedTuple):
    """The sum of one user in the window that ends at ``end`` (ms)."""

    user: int
    end: int
    value: int


class Clicks:
    """Generates the clicks of the windows benchmark by their indices."""

    def __init__(self, users: int) -> None:
        self.users = users

    def __call__(self, index: Numbers) -> pa.Table:
        users = ((index.astype(np.uint64) * np.uint64(2_654_435_769) & np.uint64(0xFFFF_FFFF)) * self.users) >> 32
        return pa.table([users.astype(np.int64), index, np.ones_like(index)], schema_of(Click))


def ends_of_clicks(size: int, clicks: pa.Table) -> pa.Table:
    """Convert each click to a sum in its window of ``size`` ms."""
    ends = pc.multiply(pc.add(pc.divide(clicks["time"], size), 1), size)
    return pa.table([clicks["user"], ends, clicks["value"]], schema_of(Sum))


def sums_of_clicks(size: int, clicks: pa.Table) -> pa.Table:
    """Add up clicks per user and window."""
    return added_up(ends_of_clicks(size, clicks))


def added_up(rows: pa.Table) -> pa.Table:
    """Add up sums per user and window."""
    sums = rows.group_by(["user", "end"], use_threads=False).aggregate([("value", "sum")])
    return sums.rename_columns(["user", "end", "value"]).cast(schema_of(Sum))


class Sums(ArrowEventTimeProcessFunction[Sum, Sum]):
    """Adds up per user and window, and emits the sums at the end of the window."""

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
    """Forward a single record."""
    output.collect(record)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--clicks", type=int, default=10_000_000, help="clicks per micro-batch (10,000,000)")
    parser.add_argument("--users", type=int, default=100_000, help="number of keys (100,000)")
    parser.add_argument("--batches", type=int, default=5, help="measured micro-batches, after two for warm-up (5)")
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
    """Measure the pipeline of the windows benchmark."""
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
    """Measure the same job on tables."""
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
