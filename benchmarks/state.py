"""Large state, few keys per micro-batch: the cost of a micro-batch by the size of state and by state layout.

The job is one keyed function in two tasks on ``local[2]``. A first query creates all keys, in a few large
micro-batches. A second query resumes from its checkpoint and updates 1,000 keys per micro-batch, chosen evenly and
deterministically. Each key has a value state, the number of its visits.

The layouts are: one blob for each of two subtasks, in Spark's default store or in RocksDB; blobs in finer slots, that
is, sixteen subtasks that share the two tasks; and pages in a map (also in RocksDB).
``memory`` is the memory of the state stores as reported by Spark.

The second table has larger values, of ``--value-bytes`` for each key, in maps. The third one shows what such a
micro-batch reads from a map and writes to it, without Spark: bytes, and in times of the touched keys and values.

The next table is for two subtasks with blobs, without Spark: the size of the state, and the CPU time to restore it,
process the 1,000 records and take the snapshot.

The last one appends 1,000 rows at a time to lists in columns, without Spark, and reads the list of another key each
time.
"""

from __future__ import annotations

import pickle
import statistics
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.common import (
    Arguments,
    Report,
    Sample,
    batch_seconds,
    checkpoint,
    conditions,
    spark_session,
)
from benchmarks.common.outside import OutsideSpark
from dsv2 import Collector, Dsv2Error, ExecutionEnvironment, PartitionedContext, Trigger
from dsv2.arrow import schema_of
from dsv2.arrow.keyed.columns import ArrowKeyedColumns
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.report.short_repr import shorten
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.page_store import in_blob, in_entries
from dsv2.runtime.state.timers import BatchTime
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import BaseSource, DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.watermark.event_time import EventTimeOfInputs
from runtime_spark import SparkRuntime, StateLayout
from runtime_spark.job.query import StreamingJob

__all__ = ("main",)

NAME = "state"
TOUCHED = 1000
TASKS = 2
FINER = 16
LIMIT = 3.0
"""The maximum ratio of the time of a micro-batch with the most keys to that with the fewest."""
MOVED_LIMIT = 8.0
"""The maximum ratio of the bytes that are read, or written, to those of the touched keys and their values."""
MEMORY_LIMIT = 2.0
"""The maximum ratio of the memory per key to its pickled size."""
APPEND_LIMIT = 3.0
"""The maximum ratio of the CPU time of the last appends to lists to that of the first ones."""

_WARM_UP = 3  # micro-batches of the second query
_REPEATS = 5  # without Spark
_LOADED_AT_ONCE = 2_500_000
_MOST_IN_BLOBS = 5_000_000  # 10,000,000 exceed the heap of 4 GB and end Spark, and with it the benchmark
_TOO_MANY = "not tried: blobs of so many keys do not fit into Spark's heap here (see --most-in-blobs)"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB = {_PROVIDER: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}

SHORT = {"keys": [1_000, 10_000], "sized_keys": [10_000], "batches": 2, "layouts": ["map", "blob"], "appends": 100}


class Layout(NamedTuple):
    """A state layout with Spark settings and the number of subtasks."""

    state_layout: StateLayout
    settings: Mapping[str, str]
    subtasks: int = TASKS


LAYOUTS = {
    "map": Layout(StateLayout.MAP, {}),
    "blob": Layout(StateLayout.BLOB, {}),
    "blob-rocksdb": Layout(StateLayout.BLOB, _ROCKSDB),
    "blob-finer-slots": Layout(StateLayout.BLOB, {}, FINER),
}


class Visit(NamedTuple):
    """A visit of a user."""

    user: str


class Sale(NamedTuple):
    """An element of a list."""

    user: int
    price: int
    page: str


class Visits:
    """Generates visits by index: the first ``users`` visits are of different users, the others of any of them."""

    def __init__(self, users: int) -> None:
        self.users = users

    def __call__(self, index: int) -> Visit:
        # A multiplicative hash distributes visits over all users, and is the same in every run.
        user = index if index < self.users else (index * 2_654_435_769 & 0xFFFF_FFFF) * self.users >> 32
        return Visit(f"user-{user:08d}")


VISITS = StateDeclarations.value_state("visits", int, default=0)
SALES = StateDeclarations.list_state("sales", Sale)
PADDED = StateDeclarations.value_state("padded visits", bytes, default=b"")


class Count(OneInputStreamProcessFunction[Visit, Visit]):
    """Counts the visits of each user, and emits nothing."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [VISITS]

    def process_record(self, record: Visit, output: Collector[Visit], ctx: PartitionedContext[Visit]) -> None:
        visits = ctx.state_manager.get_state(VISITS)
        visits.update(visits.value() + 1)


class PaddedCount(OneInputStreamProcessFunction[Visit, Visit]):
    """Counts the visits of each user as a number of ``size`` bytes, and emits nothing."""

    def __init__(self, size: int) -> None:
        self.size = size

    def uses_states(self) -> Collection[StateDeclaration]:
        return [PADDED]

    def process_record(self, record: Visit, output: Collector[Visit], ctx: PartitionedContext[Visit]) -> None:
        visits = ctx.state_manager.get_state(PADDED)
        visits.update((int.from_bytes(visits.value(), "little") + 1).to_bytes(self.size, "little"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments`` and return the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument(
        "--keys", type=int, nargs="+", default=[100_000, 1_000_000, 4_000_000, 10_000_000], help="numbers of keys held"
    )
    parser.add_argument(
        "--sized-keys", type=int, nargs="*", default=[1_000_000, 5_000_000], help="numbers of keys with larger values"
    )
    parser.add_argument("--value-bytes", type=int, default=100, help="the size of these values (100)")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="only these (all)")
    parser.add_argument("--batches", type=int, default=15, help="measured micro-batches for each number of keys (15)")
    parser.add_argument(
        "--most-in-blobs",
        type=int,
        default=_MOST_IN_BLOBS,
        help=f"maximum number of keys for blobs ({_MOST_IN_BLOBS:,})",
    )
    parser.add_argument("--appends", type=int, default=1000, help="appends to lists in columns (1000)")
    options = parser.parse(arguments, SHORT)
    size = options.value_bytes
    with spark_session("state benchmark") as spark:
        report = Report(NAME, "Many keys held, few touched", conditions(spark, NAME, arguments))
        rows: list[tuple[str | int | float, ...]] = []
        failures: list[tuple[str, int, str]] = []
        for name in options.layouts:
            tried = _few_enough(options.keys, options.most_in_blobs) if _in_blobs(name) else options.keys
            failures += [(name, keys, _TOO_MANY) for keys in options.keys if keys not in tried]
            runs: dict[int, Run] = {}
            for keys in sorted(tried):
                try:
                    if not runs:
                        on_spark(spark, LAYOUTS[name], keys, options.batches)  # warm-up
                    runs[keys] = on_spark(spark, LAYOUTS[name], keys, options.batches)
                except Dsv2Error as error:  # a layout that cannot hold so many keys is a result
                    failures.append((name, keys, shorten(error)))
            if runs:
                rows += _rows(name, runs)
                _judge(report, name, runs)
        sized = {keys: on_spark(spark, LAYOUTS["map"], keys, options.batches, size) for keys in options.sized_keys}
    report.table(
        f"On Spark: micro-batches of {TOUCHED:,} records",
        (
            *("layout", "keys held", "median ms", "spread", f"times {min(options.keys):,} keys"),
            *("s to load", "MB of memory", "bytes per key"),
        ),
        rows,
    )
    report.table(
        f"On Spark: micro-batches of {TOUCHED:,} records, values of {size} bytes, map",
        ("keys held", "median ms", "spread", "s to load", "MB of memory", "bytes per key"),
        [
            (
                keys,
                round(run.sample.median * 1000),
                run.sample.spread,
                run.load_seconds,
                run.memory / 1e6,
                run.memory / keys,
            )
            for keys, run in sized.items()
        ],
    )
    moves = {keys: moved(keys, size) for keys in options.sized_keys}
    report.table(
        f"Without Spark: what {TOUCHED:,} records move, values of {size} bytes, map",
        ("keys held", "pages read", "kB read", "kB written", "times touched: read", "written", "CPU ms"),
        [(keys, one.pages, one.read / 1e3, one.written / 1e3, *one.times, one.cpu_ms) for keys, one in moves.items()],
    )
    for keys, one in moves.items():
        report.at_most(f"map: {keys:,} keys: bytes read, in times of those touched", one.times[0], MOVED_LIMIT)
        report.at_most(f"map: {keys:,} keys: bytes written, in times of those touched", one.times[1], MOVED_LIMIT)
    if failures:
        report.table("What did not run", ("layout", "keys held", "why"), failures)
    header = ("keys held", "bytes of state per subtask", "restore ms", "process ms", "snapshot ms")
    few_enough = _few_enough(options.keys, options.most_in_blobs)
    report.table("Without Spark, both subtasks together", header, [(keys, *outside_spark(keys)) for keys in few_enough])
    of_lists = {keys: appends(keys, options.appends) for keys in (1, 100_000)}
    report.table(
        f"Without Spark: {options.appends:,} appends of {TOUCHED:,} rows to lists in columns",
        ("keys", "CPU ms of the first tenth", "of the last tenth"),
        [(keys, *times) for keys, times in of_lists.items()],
    )
    for keys, (first, last) in of_lists.items():
        report.at_most(f"lists of {keys:,} keys: the last appends in times of the first", last / first, APPEND_LIMIT)
    report.publish(options.results)
    return 0


class Run(NamedTuple):
    """The measurements for one number of keys. ``memory`` is in bytes."""

    load_seconds: float
    sample: Sample
    memory: int


def _in_blobs(name: str) -> bool:
    return LAYOUTS[name].state_layout is StateLayout.BLOB


def _few_enough(keys: Sequence[int], most: int) -> list[int]:
    return [number for number in keys if number <= most]


def _rows(name: str, runs: Mapping[int, Run]) -> Iterator[tuple[str | int | float, ...]]:
    base = runs[min(runs)].sample.median
    for keys, (load_seconds, sample, memory) in runs.items():
        times = sample.median / base
        yield name, keys, round(sample.median * 1000), sample.spread, times, load_seconds, memory / 1e6, memory / keys


def _judge(report: Report, name: str, runs: Mapping[int, Run]) -> None:
    fewest, most = min(runs), max(runs)
    times = runs[most].sample.median / runs[fewest].sample.median
    report.at_most(f"{name}: {most:,} keys in times of {fewest:,}", times, LIMIT)
    pickled = len(pickle.dumps((Visits(most)(0).user, 1), 5))
    claim = f"{name}: memory per key, of {most:,}, in times of its pickled {pickled} bytes"
    report.at_most(claim, runs[most].memory / most / pickled, MEMORY_LIMIT)


def pipeline(env: ExecutionEnvironment, source: BaseSource[Visit], subtasks: int, size: int | None = None) -> None:
    """Build the pipeline that counts visits by user. ``size``: the bytes of each value; None: small numbers."""
    function = Count() if size is None else PaddedCount(size)
    env.set_parallelism(TASKS)
    visits = env.from_source(source, "visits").with_uid("visits")
    kept = visits.key_by(lambda visit: visit.user).process(function).with_uid("keys").with_parallelism(subtasks)
    kept.to_sink(ForeachBatchSink(lambda records, batch_id: None)).with_uid("nowhere").with_parallelism(TASKS)


def on_spark(spark: SparkSession, layout: Layout, keys: int, batches: int, size: int | None = None) -> Run:
    """Measure micro-batches that update ``TOUCHED`` of ``keys`` keys."""
    loads = -(-keys // _LOADED_AT_ONCE)
    loaded_at_once = -(-keys // loads)
    visits, loaded = Visits(keys), loads * loaded_at_once
    with checkpoint() as folder, _settings(spark, layout.settings):
        began = time.perf_counter()
        for _ in range(loads):
            _finished(spark, layout, visits, loaded_at_once, None, folder, size)
        load_seconds = time.perf_counter() - began
        # One more micro-batch, because the last one also ends the input.
        query = _finished(spark, layout, visits, TOUCHED, loaded + TOUCHED * (_WARM_UP + batches + 1), folder, size)
        sample = Sample.of(batch_seconds(query, loads + _WARM_UP, batches))
        memory = max(sum(o.memoryUsedBytes for o in progress.stateOperators) for progress in query.recentProgress)
        return Run(load_seconds, sample, memory)


@contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


class Moved(NamedTuple):
    """The data that a micro-batch reads and writes. ``times``: bytes of both, relative to the touched bytes."""

    pages: int
    read: int
    written: int
    times: tuple[float, float]
    cpu_ms: float


class _Entries:
    """Counts the bytes of a map's entries that are read and written."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, int], bytes] = {}
        self.reads = self.read = self.written = 0

    def get(self, name: str, number: int) -> bytes | None:
        data = self.entries.get((name, number))
        self.reads += 1
        self.read += len(data or b"")
        return data

    def put(self, name: str, number: int, data: bytes) -> None:
        self.entries[name, number] = data
        self.written += len(data)

    def remove(self, name: str, number: int) -> None:
        del self.entries[name, number]


def moved(keys: int, size: int) -> Moved:
    """Measure a micro-batch that updates ``TOUCHED`` of ``keys`` keys of one subtask with a map."""
    entries, codec, visits = _Entries(), Codec(TypeRegistry()), Visits(keys)
    state: tuple[Any, ...] | None = None

    def run(begin: int, end: int) -> float:
        nonlocal state
        began = time.process_time()
        store = PagedKeyedStore(codec, "benchmark", stores=in_entries(entries, codec))
        if state is not None:
            store.restore(state)
        values = store.column("visits")
        for index in range(begin, end):
            key = visits(index).user
            store.touch(key)
            values[key] = (index + 1).to_bytes(size, "little")
        state = store.snapshot()
        return (time.process_time() - began) * 1000

    for begin in range(0, keys, _LOADED_AT_ONCE):
        run(begin, min(keys, begin + _LOADED_AT_ONCE))
    entries.reads = entries.read = entries.written = 0
    cpu_ms = run(keys, keys + TOUCHED)
    touched = TOUCHED * (size + len(visits(0).user))
    return Moved(
        entries.reads, entries.read, entries.written, (entries.read / touched, entries.written / touched), cpu_ms
    )


def appends(keys: int, count: int) -> tuple[float, float]:
    """Return the CPU ms of an append to the lists of ``keys`` keys: the medians of the first and of the last tenth."""
    environment = ColumnsEnvironment(
        True, ("user",), 0, 1, 128, Codec(TypeRegistry()), in_blob, "benchmark", BatchTime(0), EventTimeOfInputs(1)
    )
    state = ArrowKeyedColumns([SALES], environment, _failed).keyed_state(SALES)
    random, other, times = np.random.default_rng(0), pa.chunked_array([[-1]], pa.int64()), []
    pages = pa.array([f"https://example.com/item/{number}" for number in range(TOUCHED)])
    for _ in range(count):
        users = pa.array(random.integers(0, keys, TOUCHED))
        rows = pa.table([users, pa.array(random.integers(0, 1000, TOUCHED)), pages], schema_of(Sale))
        began = time.process_time()
        state.append(rows["user"], rows)
        state.get(other)
        times.append((time.process_time() - began) * 1000)
    tenth = count // 10
    return statistics.median(times[:tenth]), statistics.median(times[-tenth:])


def _failed(state: object, key: object, error: BaseException) -> NoReturn:
    raise error


def outside_spark(keys: int) -> tuple[str, float, float, float]:
    """Return the bytes of state, and the ms to restore, process ``TOUCHED`` records and snapshot with ``keys`` keys."""
    env = ExecutionEnvironment.get_instance(runtime="local")
    pipeline(env, DataGeneratorSource(Visits(keys)), TASKS)
    run = OutsideSpark(env.build_plan())
    run.run_batch(keys)
    run.watches.clear()
    for _ in range(_REPEATS):
        run.run_batch(TOUCHED)
    seconds = run.watches["level 1"].seconds
    restore, process, snapshot = (
        seconds[part] / _REPEATS * 1000 for part in ("restore", "process and route", "snapshot")
    )
    sizes = " + ".join(f"{len(state.blob or b''):,}" for state in run.states.values())
    return sizes, restore, process, snapshot


def _finished(
    spark: SparkSession,
    layout: Layout,
    visits: Visits,
    records_per_batch: int,
    count: int | None,
    folder: str,
    size: int | None,
) -> StreamingQuery:
    """Run a query for ``count`` records, or for one micro-batch if it is None."""
    runtime = SparkRuntime(spark, partitions=TASKS, state_layout=layout.state_layout)
    env = ExecutionEnvironment.get_instance(runtime)
    pipeline(env, DataGeneratorSource(visits, count=count, records_per_batch=records_per_batch), layout.subtasks, size)
    job = env.execute_async("visits", checkpoint_location=folder, trigger=Trigger.available_now())
    assert isinstance(job, StreamingJob)
    job.result()
    return job.query


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import state

    sys.exit(state.main())
