"""Watermark alignment: its effect on buffered records, and its cost.

**Buffered records.** One of two splits of a source is 50 times faster in event time. They share the limit of a
micro-batch, and tumbling windows per key follow. A window fires when the slow split has passed it, so records of the
fast split are buffered in state. The benchmark counts the buffered records after each micro-batch, with and without
alignment. (A paused split leaves its share of the limit to the other one, so with alignment the slow split ends in half
the micro-batches.)

**Cost.** The same windows over two splits of equal speed, which never wait for each other: with a watermark generator
after the source, with event time per split (readers report to the driver after each micro-batch), and with alignment.
All three have the same results.

Everything runs in ``local[2]`` with two subtasks per operator.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeAlias

import matplotlib.pyplot as plt
from pyspark.sql import SparkSession

from benchmarks.common import Arguments, Report, conditions, spark_session
from benchmarks.common.contest import WARM_UP, Measured, compare, run_dsv2
from benchmarks.common.measure import checkpoint
from dsv2 import ExecutionEnvironment, NonKeyedPartitionStream, Trigger
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.model import RecordBatch
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataclassSerializer, Portion, RoundRobinSplitAssigner, SplitSource, WatermarkStrategy

__all__ = ("main",)

NAME = "alignment"
FASTER = 50
TARGET = 10
"""The minimum ratio of buffered records without alignment to those with it."""

SHORT = {"limit": 400, "batches": 12, "window": 200, "drift": 2_000, "keys": 50, "sizes": [2_000], "measured": 2}
_RECORDS_AT_ONCE = 4096

Reading: TypeAlias = tuple[int, int, int]
"""Key, time in ms, and the number of readings that this one aggregates."""


@dataclass(frozen=True)
class Stretch:
    """A split with ``end`` readings, one every ``step_ms``, read up to ``position``."""

    name: str
    step_ms: int
    end: int
    position: int = 0

    @property
    def split_id(self) -> str:
        """The name of the split."""
        return self.name


class Readings(SplitSource[Reading, Stretch]):
    """Generates readings. ``steps``: the ms between readings, by split. ``count``: the number of readings per split."""

    split_serializer = DataclassSerializer(Stretch)
    assigner = RoundRobinSplitAssigner()

    def __init__(self, steps: Mapping[str, int], *, count: int, keys: int, limit: int, bounded: bool) -> None:
        self.steps = dict(steps)
        self.count = count
        self.keys = keys
        self.limit_per_batch = limit
        self._bounded = bounded

    @property
    def bounded(self) -> bool:
        return self._bounded

    def discover(self) -> list[Stretch]:
        return [Stretch(name, step, self.count) for name, step in self.steps.items()]

    def advance(self, split: Stretch, limit: int | None, /) -> Portion[Stretch] | None:
        stop = split.end if limit is None else min(split.end, split.position + limit)
        if stop == split.position and not self._bounded:
            return None
        return Portion(replace(split, position=stop), stop - split.position, self._bounded and stop == split.end)

    def read(self, start: Stretch, stop: Stretch, /) -> Iterator[RecordBatch[Reading]]:
        for first in range(start.position, stop.position, _RECORDS_AT_ONCE):
            numbers = range(first, min(first + _RECORDS_AT_ONCE, stop.position))
            yield RecordBatch([(number * 7919 % self.keys, number * start.step_ms, 1) for number in numbers])


def key_of(reading: Reading) -> int:
    """Return the key."""
    return reading[0]


def time_of(reading: Reading) -> int:
    """Return the event time."""
    return reading[1]


def together(first: Reading, second: Reading) -> Reading:
    """Aggregate two readings."""
    return first[0], second[1], first[2] + second[2]


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--limit", type=int, default=20_000, help="records per micro-batch, first part (20,000)")
    parser.add_argument("--batches", type=int, default=60, help="micro-batches without alignment (60)")
    parser.add_argument("--window", type=int, default=10_000, help="size of the windows in ms (10,000)")
    parser.add_argument("--drift", type=int, default=100_000, help="maximum drift in ms (100,000)")
    parser.add_argument("--keys", type=int, default=1_000, help="number of keys (1,000)")
    parser.add_argument("--sizes", type=int, nargs="+", default=[2_000, 200_000], help="records per micro-batch, cost")
    parser.add_argument("--measured", type=int, default=20, help="measured micro-batches, after two for warm-up (20)")
    options = parser.parse(arguments, SHORT)
    with spark_session("alignment benchmark") as spark:
        report = Report(NAME, "Watermark alignment", conditions(spark, NAME, arguments))
        waiting = {
            "without": buffered_records(spark, options, strategy()),
            "with": buffered_records(spark, options, aligned(options)),
        }
        report_buffered(report, options, waiting)
        for size in options.sizes:
            compare(report, size, measure_costs(spark, options, size))
    report.publish(options.results)
    if options.results is not None:
        draw(waiting, options.results / f"{NAME}.svg")
    return 0


def strategy() -> WatermarkStrategy[Reading]:
    """A strategy with event time per split."""
    return EventTimeExtension.new_watermark_generator_builder(time_of).build_as_watermark_strategy()


def aligned(options: argparse.Namespace) -> WatermarkStrategy[Reading]:
    """The same strategy with alignment."""
    drift = timedelta(milliseconds=options.drift)
    return strategy().with_watermark_alignment("readings", drift, timedelta(milliseconds=1))


def environment(spark: SparkSession) -> ExecutionEnvironment:
    """An environment with two subtasks per operator."""
    env = ExecutionEnvironment.get_instance(spark=spark)
    env.set_parallelism(2)
    return env


def count_in_windows(readings: NonKeyedPartitionStream[Reading], window_ms: int, counts: dict[int, int]) -> None:
    """Add windows per key. ``counts`` gets the number of readings in the results of each micro-batch."""
    size = WindowStrategy.tumbling(timedelta(milliseconds=window_ms))
    results = readings.key_by(key_of).window(size).reduce(together).with_uid("windows")
    results.to_sink(ForeachBatchSink(lambda records, batch: counts.update({batch: sum(n for _, _, n in records)})))


def buffered_records(
    spark: SparkSession, options: argparse.Namespace, watermarks: WatermarkStrategy[Reading]
) -> list[int]:
    """The number of buffered records after each micro-batch, until the slow split has been read."""
    env, counts = environment(spark), dict[int, int]()
    count = options.batches * options.limit // 2
    source = Readings({"fast": FASTER, "slow": 1}, count=count, keys=options.keys, limit=options.limit, bounded=False)
    count_in_windows(env.from_source(source, "readings", watermarks=watermarks), options.window, counts)
    with checkpoint() as folder:
        env.execute("what waits", checkpoint_location=folder, trigger=Trigger.available_now())
        read = read_after_each_batch(folder)
    waiting, results = [], 0
    for batch, so_far in enumerate(read):
        results += counts.get(batch, 0)
        waiting.append(so_far - results)
    return waiting


def read_after_each_batch(folder: str) -> list[int]:
    """The number of records read after each micro-batch, from the offsets in Spark's log."""
    files = sorted(Path(folder, "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    offsets = [json.loads(file.read_text().splitlines()[2]) for file in files]
    return [
        sum(split["at"]["position"] for reader in offset["readers"] for split in reader["splits"]) for offset in offsets
    ]


def report_buffered(report: Report, options: argparse.Namespace, waiting: Mapping[str, list[int]]) -> None:
    """Add a table of some micro-batches, and check that the drift bounds the number of buffered records."""
    last = max(map(len, waiting.values())) - 1
    shown = sorted({round(last * tenth / 10) for tenth in range(11)})
    rows = [
        (batch + 1, *(series[batch] if batch < len(series) else "has ended" for series in waiting.values()))
        for batch in shown
    ]
    header = ("micro-batch", *(f"{name} alignment" for name in waiting))
    report.table("Records that wait in windows (drawn in alignment.svg)", header, rows)
    most = {name: max(series) for name, series in waiting.items()}
    # The drift and one micro-batch of the fast split, and an unfinished window of the slow one.
    bound = options.drift // FASTER + options.limit + options.window
    report.at_most("what waits with alignment, as a part of drift, micro-batch and window", most["with"] / bound, 1)
    report.at_least("times as much waits without", most["without"] / most["with"], TARGET)


def measure_costs(spark: SparkSession, options: argparse.Namespace, size: int) -> dict[str, Measured]:
    """Measure two splits of equal speed in three variants."""
    forms: dict[str, WatermarkStrategy[Reading] | None] = {
        "generator behind the source": None,
        "event time of splits": strategy(),
        "event time of splits, aligned": aligned(options),
    }
    measured = {name: one_speed(spark, options, size, watermarks) for name, watermarks in forms.items()}
    if len({form.total for form in measured.values()}) != 1:
        raise AssertionError(f"The results differ: { {name: form.total for name, form in measured.items()} }")
    return measured


def one_speed(
    spark: SparkSession, options: argparse.Namespace, size: int, watermarks: WatermarkStrategy[Reading] | None
) -> Measured:
    """Measure one variant with micro-batches of ``size`` records."""
    env, counts = environment(spark), dict[int, int]()
    count = size * (WARM_UP + options.measured) // 2
    source = Readings({"one": 1, "other": 1}, count=count, keys=options.keys, limit=size, bounded=True)
    readings = env.from_source(source, "readings", watermarks=watermarks)
    if watermarks is None:
        generator = EventTimeExtension.new_watermark_generator_builder(time_of)
        readings = readings.process(generator.build_as_process_function()).with_uid("times")
    count_in_windows(readings, size, counts)
    return run_dsv2(env, "what it costs", counts, options.measured)


def draw(waiting: Mapping[str, list[int]], file: Path) -> None:
    """Draw a line for each series."""
    with plt.rc_context({"svg.hashsalt": NAME, "svg.fonttype": "none"}):
        figure, axes = plt.subplots(figsize=(7, 4))
        for name, series in waiting.items():
            axes.plot(range(1, len(series) + 1), series, label=f"{name} alignment")
        axes.set_xlabel("micro-batch")
        axes.set_ylabel("records that wait in windows")
        axes.set_ylim(bottom=0)
        axes.legend()
        figure.savefig(file, metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import alignment

    sys.exit(alignment.main())
