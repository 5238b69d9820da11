"""Tumbling windows in event time: dsv2 against Spark's own windows in SQL, and against a plain Python loop.

**The job**: a sum per user and window over 1,000,000 clicks in a micro-batch, of 100,000 users, one click each
millisecond. A window is 500 seconds long, so a micro-batch closes two, each with a sum for nearly every user.

* The *plain loop* calls the same user functions (the time of a click, its user, the sum) on one core, with dictionaries
  and no framework; clicks are made in the loop, as a source makes them. At the end of a batch it closes the windows
  that the greatest time has passed.
* *Spark SQL* is ``withWatermark``, ``groupBy(window, user)`` and ``sum`` over ``rate-micro-batch``: everything runs in
  the JVM, on columns, and no user function in Python is called.
* *dsv2* is a generator of watermarks and a window with ``reduce``, in ``local[2]`` with two subtasks of everything.

The results of the first two are counted and must agree; Spark SQL closes a window one micro-batch later.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from benchmarks.common import Arguments, Report, Sample, conditions, spark_session
from benchmarks.common.contest import WARM_UP, Measured, compare, run_dsv2, run_sql
from dsv2 import ExecutionEnvironment
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy, reduce
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource

__all__ = ("main",)

NAME = "windows"
TARGET = 0.3
"""Of the plain loop's throughput."""

SHORT = {"clicks": 20_000, "users": 2_000, "batches": 2}

Click: TypeAlias = tuple[int, int, int]
"""User, time in ms, value."""


class Clicks:
    """Click number ``index``: users are scattered over all, and the same at every run."""

    def __init__(self, users: int) -> None:
        self.users = users

    def __call__(self, index: int) -> Click:
        return (index * 2_654_435_769 & 0xFFFF_FFFF) * self.users >> 32, index, 1


def user_of(click: Click) -> int:
    """The key."""
    return click[0]


def time_of(click: Click) -> int:
    """Event time."""
    return click[1]


def add(first: Click, second: Click) -> Click:
    """The sum of two clicks of one user."""
    return first[0], second[1], first[2] + second[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments``; returns the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--clicks", type=int, default=1_000_000, help="in a micro-batch (1,000,000)")
    parser.add_argument("--users", type=int, default=100_000, help="keys (100,000)")
    parser.add_argument("--batches", type=int, default=7, help="that are measured, after two to warm up (7)")
    options = parser.parse(arguments, SHORT)
    plain = plain_loop(options)
    with spark_session("windows benchmark") as spark:
        report = Report(NAME, "Tumbling windows in event time", conditions(spark, NAME, arguments))
        ours = with_dsv2(spark, options)
        sql = run_sql(in_sql(spark, options), options.batches)
    if ours.total != plain.total:
        raise AssertionError(f"{ours.total} sums of dsv2, {plain.total} expected")
    compare(report, options.clicks, {"plain loop": plain, "dsv2": ours, "Spark SQL": sql})
    report.at_least("throughput as a part of the plain loop's", plain.sample.median / ours.sample.median, TARGET)
    report.publish(options.results)
    return 0


def _size(options: argparse.Namespace) -> int:
    return int(options.clicks) // 2  # ms: there is a click each


def plain_loop(options: argparse.Namespace) -> Measured:
    """Dictionaries, and nothing else."""
    make, size = Clicks(options.users), _size(options)
    windows: dict[int, dict[int, Click]] = {}
    seconds, counts = [], {}
    for batch in range(WARM_UP + options.batches):
        gc.collect()  # so that no batch pays for the one before
        begin = time.perf_counter()
        newest, sums = 0, list[Click]()
        for index in range(batch * options.clicks, (batch + 1) * options.clicks):
            click = make(index)
            timestamp, user = time_of(click), user_of(click)
            if timestamp > newest:
                newest = timestamp
            start = timestamp - timestamp % size
            window = windows.get(start)
            if window is None:
                window = windows[start] = {}
            before = window.get(user)
            window[user] = click if before is None else add(before, click)
        for start in [start for start in windows if start + size <= newest]:
            sums += windows.pop(start).values()
        seconds.append(time.perf_counter() - begin)
        counts[batch] = len(sums)
    counts[WARM_UP + options.batches] = sum(map(len, windows.values()))  # what the end of input brings
    return Measured(Sample.of(seconds[WARM_UP:]), counts)


def with_dsv2(spark: SparkSession, options: argparse.Namespace) -> Measured:
    """A generator, ``key_by``, a window."""
    counts: dict[int, int] = {}
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(2)
    count = options.clicks * (WARM_UP + options.batches)
    source = DataGeneratorSource(Clicks(options.users), count=count, records_per_batch=options.clicks)
    generator = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
    timed = env.from_source(source, "clicks").process(generator).with_uid("times")
    window = reduce(WindowStrategy.tumbling(timedelta(milliseconds=_size(options))), add)
    sums = timed.key_by(user_of).process(window).with_uid("sums")
    sums.to_sink(ForeachBatchSink(lambda records, batch_id: counts.update({batch_id: len(records)})))
    return run_dsv2(env, "windows", counts, options.batches)


def in_sql(spark: SparkSession, options: argparse.Namespace) -> DataFrame:
    """The same in columns."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", options.clicks).load()
    scattered = (F.col("value") * 2_654_435_769).bitwiseAND(0xFFFF_FFFF) * options.users
    clicks = rows.select(
        F.shiftright(scattered, 32).alias("user"), F.timestamp_millis("value").alias("time"), F.lit(1).alias("value")
    )
    window = F.window("time", f"{_size(options)} milliseconds")
    return clicks.withWatermark("time", "0 seconds").groupBy(window, "user").agg(F.sum("value").alias("value"))


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import windows

    sys.exit(windows.main())
