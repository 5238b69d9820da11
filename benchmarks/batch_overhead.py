"""What a micro-batch costs before any record counts: plans of one, two and three levels against hand-written Spark.

Everything counts per key, 100 records a micro-batch over 20 keys, in two partitions of ``local[2]``. A level is a keyed
function that keeps a count per key in a field and passes on ``(key, count)``; the next one counts those by key again.

The hand-written queries have the same source, and a sink that collects on the driver, as the plans' does:

* *per key*: as one writes it, one ``applyInPandasWithState`` over ``groupBy("key")``, with a count as the state of each
  of the 20 groups; what everything is compared with;
* *1, 2 and 3 stages*: the hardest opponents, one for each plan: so many ``applyInPandasWithState`` in a row, with two
  hash buckets as groups, one in each partition, which keep the counts of their keys as bytes. It is what a plan does
  inside, without the plan, and less of it: a stage passes on one row per key, a level one record per record. What they
  take is Spark's own; no plan can be faster.

The first table is about a source of Spark's own: Parquet files, one in each micro-batch, which the plans read through
``from_dataframe``. The second one is about a source in Python: ``DataGeneratorSource`` in the plans, and by hand the
least ``DataSourceStreamReader`` that does the same. The queries take turns, each with a checkpoint of its own; the
first turn is only to warm everything up.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import StructType

from benchmarks.common import (
    Arguments,
    Report,
    Sample,
    batch_seconds,
    checkpoint,
    conditions,
    spark_session,
)
from dsv2 import Collector, ExecutionEnvironment, PartitionedContext, Trigger
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.streams import NonKeyedPartitionStream
from runtime_spark.layout import spark_partition
from runtime_spark.query import StreamingJob
from runtime_spark.session import starting

__all__ = ("main",)

NAME = "batch_overhead"
RECORDS = 100
KEYS = 20
PARTITIONS = 2
LEVELS = (1, 2, 3)
BASELINE = "by hand, per key"
PER_LEVEL = 0.5
"""A plan of L levels is to cost at most 1 + PER_LEVEL * (L - 1) times the hand-written query."""

_SCHEMA = "value long"
SHORT = {"levels": (1, 2), "rounds": 1, "skip": 0, "warm_up": 1, "batches": 1}

# One bucket per partition, as a plan places its subtasks.
_BUCKETS = [next(n for n in range(100) if spark_partition(n, PARTITIONS) == index) for index in range(PARTITIONS)]

Run = Callable[[str], StreamingQuery]
"""Runs a query to its end, with its checkpoint in the given folder."""
Read = Callable[[ExecutionEnvironment], NonKeyedPartitionStream["Item"]]


class Item(NamedTuple):
    """A record: ``value`` counts up."""

    value: int


class Count(NamedTuple):
    """So many of ``key`` so far."""

    key: int
    total: int


class CountPerKey(OneInputStreamProcessFunction[Item | Count, Count]):
    """Counts the records of each key."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def process_record(self, record: Item | Count, output: Collector[Count], ctx: PartitionedContext[Count]) -> None:
        key = key_of(record)
        self.counts[key] += 1
        output.collect(Count(key, self.counts[key]))


def key_of(record: Item | Count) -> int:
    """The key that records of all levels have."""
    return record.value % KEYS if isinstance(record, Item) else record.key


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark with command-line ``arguments``; returns the exit code."""
    parser = Arguments(NAME, __doc__)
    parser.add_argument("--levels", type=int, nargs="+", default=LEVELS, help="of the plans (1 2 3)")
    parser.add_argument("--rounds", type=int, default=4, help="in which every query runs once (4)")
    parser.add_argument("--skip", type=int, default=1, help="rounds before those, to warm up (1)")
    # A query's first micro-batches compile code and open state stores.
    parser.add_argument("--warm-up", type=int, default=3, help="micro-batches of a query before the measured ones (3)")
    parser.add_argument("--batches", type=int, default=10, help="that are measured of a query (10)")
    options = parser.parse(arguments, SHORT)
    batches = options.warm_up + options.batches
    with spark_session("batch overhead benchmark") as spark, TemporaryDirectory() as files:
        report = Report(NAME, "The overhead of a micro-batch", conditions(spark, NAME, arguments))
        _write_files(files, batches)
        for source, queries in {
            "source of Spark's own": _queries(spark, options.levels, *_from_files(spark, files)),
            "source in Python": _queries(spark, options.levels, *_from_python(spark, batches)),
        }.items():
            _compare(report, source, options.levels, _measure(queries, options))
    report.publish(options.results)
    return 0


def _write_files(folder: str, batches: int) -> None:
    for number in range(batches):
        values = range(number * RECORDS, (number + 1) * RECORDS)
        pq.write_table(pa.table({"value": list(values)}), f"{folder}/{number:04d}.parquet")


def _from_files(spark: SparkSession, folder: str) -> tuple[DataFrame, Read]:
    values = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(folder)
    return values, lambda env: env.from_dataframe(values, Item)


def _from_python(spark: SparkSession, batches: int) -> tuple[DataFrame, Read]:
    spark.dataSource.register(CountingSource)
    values = spark.readStream.format(CountingSource.name()).option("count", RECORDS * batches).load()
    # One more: the last micro-batch of a generator also ends the input.
    generator = DataGeneratorSource(Item, count=RECORDS * (batches + 1), records_per_batch=RECORDS)
    return values, lambda env: env.from_source(generator)


def _queries(spark: SparkSession, numbers: Sequence[int], values: DataFrame, read: Read) -> dict[str, Run]:
    return {
        BASELINE: by_hand_per_key(values),
        **{_by_hand(stages): by_hand_in_stages(values, stages) for stages in numbers},
        **{_plan(levels): plan_of(spark, levels, read) for levels in numbers},
    }


def _by_hand(stages: int) -> str:
    return f"by hand, {stages} stage{'s' if stages > 1 else ''}"


def _plan(levels: int) -> str:
    return f"plan, {levels} level{'s' if levels > 1 else ''}"


def _measure(queries: dict[str, Run], options: argparse.Namespace) -> dict[str, Sample]:
    seconds: dict[str, list[float]] = {name: [] for name in queries}
    for turn in range(options.skip + options.rounds):
        for name, run in queries.items():
            with checkpoint() as folder:
                query = run(folder)
            if turn >= options.skip:
                seconds[name] += batch_seconds(query, options.warm_up, options.batches)
    return {name: Sample.of(values) for name, values in seconds.items()}


def _compare(report: Report, source: str, numbers: Sequence[int], samples: dict[str, Sample]) -> None:
    title = f"{source[0].upper()}{source[1:]}"
    base = samples[BASELINE].median
    rows = [
        (name, round(sample.median * 1000), sample.spread, sample.median / base, len(sample.seconds))
        for name, sample in samples.items()
    ]
    header: tuple[str, ...] = ("query", "median ms", "spread", f"times {BASELINE}", "batches")
    report.table(f"{title}: {RECORDS} records a micro-batch", header, rows)
    pairs = {levels: (samples[_plan(levels)].median, samples[_by_hand(levels)].median) for levels in numbers}
    rows_of_pairs = [
        (levels, round(plan * 1000), round(by_hand * 1000), plan / by_hand) for levels, (plan, by_hand) in pairs.items()
    ]
    header = ("levels or stages", "plan ms", "by hand ms", "plan / by hand")
    report.table(f"{title}: plans beside as many stages by hand", header, rows_of_pairs)
    for levels, (plan, _) in pairs.items():
        report.at_most(f"{source}: {_plan(levels)}", plan / base, 1 + PER_LEVEL * (levels - 1))


def plan_of(spark: SparkSession, levels: int, read: Read) -> Run:
    """A plan that counts ``levels`` times in a row."""

    def run(folder: str) -> StreamingQuery:
        env = ExecutionEnvironment.get_instance(spark=spark)
        env.set_parallelism(PARTITIONS)
        stream: NonKeyedPartitionStream[Any] = read(env)
        for _ in range(levels):
            stream = stream.key_by(key_of).process(CountPerKey())
        stream.to_sink(ForeachBatchSink(lambda records, batch_id: None))
        job = env.execute_async(_plan(levels), checkpoint_location=folder, trigger=Trigger.available_now())
        assert isinstance(job, StreamingJob)
        job.result()
        return job.query

    return run


def by_hand_per_key(values: DataFrame) -> Run:
    """A group for each key."""

    def count(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        total = (state.get[0] if state.exists else 0) + sum(map(len, frames))
        state.update((total,))
        yield pd.DataFrame({"key": [key[0]], "count": [total]})

    groups = values.selectExpr(f"value % {KEYS} as key").groupBy("key")
    return _writing(groups.applyInPandasWithState(count, "key long, count long", "count long", "append", "NoTimeout"))


def by_hand_in_stages(values: DataFrame, stages: int) -> Run:
    """A group for each partition, ``stages`` times in a row."""

    def count(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        counts: Counter[int] = pickle.loads(state.get[0]) if state.exists else Counter()  # noqa: S301 - our own bytes
        touched: Counter[int] = Counter()
        for frame in frames:
            touched.update(frame["key"].tolist())
        counts.update(touched)
        state.update((pickle.dumps(counts),))
        yield pd.DataFrame({"key": list(touched), "count": [counts[key] for key in touched]})

    counts = values.selectExpr(f"value % {KEYS} as key")
    for _ in range(stages):
        # Computed between two stages, the bucket is also the projection without which Spark fails.
        bucket = f"array({', '.join(map(str, _BUCKETS))})[key % {PARTITIONS}] as bucket"
        groups = counts.selectExpr("key", bucket).groupBy("bucket")
        counts = groups.applyInPandasWithState(count, "key long, count long", "counts binary", "append", "NoTimeout")
    return _writing(counts, unchecked=stages > 1)


def _writing(counts: DataFrame, *, unchecked: bool = False) -> Run:
    def collect(batch: DataFrame, batch_id: int) -> None:
        batch.collect()

    def run(folder: str) -> StreamingQuery:
        writer = counts.writeStream.option("checkpointLocation", folder).trigger(availableNow=True)
        with starting(counts.sparkSession, PARTITIONS, unchecked=unchecked):
            query = writer.foreachBatch(collect).start()
        query.awaitTermination()
        return query

    return run


class CountingSource(DataSource):
    """The numbers up to the option ``count``: ``RECORDS`` of them in a micro-batch, in ``PARTITIONS`` partitions."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return CountingReader(int(self.options["count"]))


class CountingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are the number that comes next."""

    def __init__(self, count: int) -> None:
        self._count = count

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"next": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        pass

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(RECORDS)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"next": min(start["next"] + RECORDS, self._count)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(range(start["next"] + part, end["next"], PARTITIONS)) for part in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": list(partition.value)})


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import batch_overhead

    sys.exit(batch_overhead.main())
