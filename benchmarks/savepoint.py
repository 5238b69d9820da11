"""Savepoints of a large state: taking one from a checkpoint, and starting from it with another parallelism.

The job is the one of the state benchmark: one keyed function with a value state, the number of visits of each user, in
two tasks on ``local[2]``. A first query creates all keys. Then, in each round:

* *take*: ``create_savepoint``, from its checkpoint. The peer is Spark alone: it reads the same entries of the state
  store, and writes them as Parquet.
* *restore*: the first micro-batch of a query with three subtasks that starts from the savepoint. The peer is Spark
  alone: it reads the tables of the savepoint, shuffles them by key, and writes them as Parquet.

Memory is the most that one process had in any round, sampled: of a Python worker, the driver's Python, and its JVM.
With pages in a map, that of a worker must not depend on the number of keys. With blobs a worker holds the blob of a
subtask.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.common import Arguments, Report, Sample, batch_seconds, checkpoint, conditions, spark_session
from benchmarks.common.memory import Peaks, peak_memory
from benchmarks.state import TASKS, Visits, pipeline
from dsv2 import ExecutionEnvironment, Trigger
from dsv2.sources import DataGeneratorSource
from runtime_spark import SparkRuntime, StateLayout, create_savepoint
from runtime_spark.checkpoint.generation import read_generation
from runtime_spark.job.query import StreamingJob
from runtime_spark.platform.folders import open_folder
from runtime_spark.savepoint.state_entries import state_entries

__all__ = ("main",)

NAME = "savepoint"
RESTORED = 3
"""The parallelism with which a job starts from the savepoint."""
TIMES_SPARK = 10.0
"""The maximum ratio of a time to that of the peer."""
MEMORY_LIMIT = 1.5
"""The maximum ratio of the memory of a worker with the most keys to that with the fewest, with pages in a map."""

SHORT = {"keys": [1_000], "rounds": 1, "layouts": ["map"]}


@dataclass
class Runs:
    """The measurements of one kind of work: seconds of each round, and the peaks of memory in all of them."""

    own: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    peaks: Peaks = field(default_factory=Peaks)

    @property
    def ratio(self) -> float:
        """The times that dsv2 takes as long as the peer."""
        return Sample.of(self.own).median / Sample.of(self.peer).median


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    add = parser.add_argument
    layouts = [layout.value for layout in StateLayout]
    add("--keys", type=int, nargs="+", default=[250_000, 1_000_000], help="numbers of keys (250,000 and 1,000,000)")
    add("--layouts", nargs="+", choices=layouts, default=layouts, help="only these (all)")
    add("--rounds", type=int, default=3, help="repetitions (3)")
    options = parser.parse(arguments, SHORT)
    found: dict[tuple[str, int], tuple[Runs, Runs]] = {}
    with spark_session("savepoint benchmark") as spark:
        report = Report(NAME, "Savepoints of many keys", conditions(spark, NAME, arguments))
        for layout in options.layouts:
            for keys in sorted(options.keys):
                found[layout, keys] = measure(spark, StateLayout(layout), keys, options.rounds)
    _describe(report, found)
    report.publish(options.results)
    return 0


def _describe(report: Report, found: dict[tuple[str, int], tuple[Runs, Runs]]) -> None:
    for number, title in enumerate(("Taking a savepoint", "The first micro-batch, which restores it")):
        rows: list[tuple[str | int | float, ...]] = []
        for (layout, keys), both in found.items():
            runs = both[number]
            sample, peaks = Sample.of(runs.own), runs.peaks
            memory = [round(size / 1e6) for size in (peaks.worker, peaks.driver, peaks.jvm)]
            rows.append((layout, keys, round(keys / sample.median), sample.spread, runs.ratio, *memory))
        header = ("layout", "keys", "rows per second", "spread ms", "times Spark", "MB worker", "MB driver", "MB JVM")
        report.table(title, header, rows)
    for layout in {layout: None for layout, _ in found}:
        counts = [keys for name, keys in found if name == layout]
        fewest, most = min(counts), max(counts)
        for number, work in enumerate(("take", "restore")):
            report.at_most(
                f"{layout}: {work} {most:,} keys, times Spark", found[layout, most][number].ratio, TIMES_SPARK
            )
            if layout == StateLayout.MAP.value:
                memory = [found[layout, keys][number].peaks.worker for keys in (most, fewest)]
                claim = f"{layout}: {work}, memory of a worker with {most:,} keys in times of {fewest:,}"
                report.at_most(claim, memory[0] / memory[1], MEMORY_LIMIT)


def measure(spark: SparkSession, layout: StateLayout, keys: int, rounds: int) -> tuple[Runs, Runs]:
    """Measure taking and restoring a savepoint of ``keys`` keys. Of several rounds the first one does not count."""
    take, restore = Runs(), Runs()
    warm_ups = int(rounds > 1)
    with checkpoint() as location:
        folder = Path(location).parent
        run(spark, layout, keys, location, records=keys)
        for number in range(warm_ups + rounds):
            path = f"{folder}/savepoint-{number}"
            with peak_memory() as take_peaks:
                taken = _seconds(partial(create_savepoint, location, path, spark=spark))
            copied = _seconds(partial(copy_entries, spark, location, f"{folder}/entries-{number}"))
            with peak_memory() as restore_peaks:
                began = f"{folder}/restored-{number}"
                restored = run(spark, layout, keys, began, savepoint=path, records=1, subtasks=RESTORED)
            shuffled = _seconds(partial(copy_tables, spark, path, f"{folder}/rows-{number}"))
            if number >= warm_ups:
                _add(take, taken, copied, take_peaks)
                _add(restore, restored, shuffled, restore_peaks)
    return take, restore


def _add(runs: Runs, own: float, peer: float, peaks: Peaks) -> None:
    runs.own.append(own)
    runs.peer.append(peer)
    for name, size in vars(peaks).items():
        setattr(runs.peaks, name, max(size, getattr(runs.peaks, name)))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run(
    spark: SparkSession,
    layout: StateLayout,
    keys: int,
    location: str,
    *,
    records: int,
    savepoint: str | None = None,
    subtasks: int = TASKS,
) -> float:
    """Run one micro-batch of ``records``, and return its seconds."""
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, partitions=TASKS, state_layout=layout))
    source = DataGeneratorSource(Visits(keys), records_per_batch=records)
    pipeline(env, source, subtasks)
    trigger = Trigger.available_now()
    job = env.execute_async("visits", checkpoint_location=location, savepoint=savepoint, trigger=trigger)
    assert isinstance(job, StreamingJob)
    job.result()
    (seconds,) = batch_seconds(job.query, 0, 1)
    return seconds


def copy_entries(spark: SparkSession, location: str, path: str) -> None:
    """The peer of taking a savepoint."""
    state_entries(spark, read_generation(open_folder(spark, location))).write.parquet(path)


def copy_tables(spark: SparkSession, savepoint: str, path: str) -> None:
    """The peer of restoring one."""
    tables = spark.read.option("recursiveFileLookup", "true").parquet(f"{savepoint}/state")
    tables.select("subtask", "kind", "state", "key_bytes", "value_bytes").repartition(
        RESTORED, "key_bytes"
    ).write.parquet(path)


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import savepoint

    sys.exit(savepoint.main())
