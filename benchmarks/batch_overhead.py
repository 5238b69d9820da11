"""What a micro-batch costs before any record counts: plans of one, two and three levels against hand-written Spark.

Everything counts per key, 100 records a micro-batch over 20 keys, in two partitions of ``local[2]``. A level is a keyed
function that keeps a count per key in a field and passes on ``(key, count)``; the next one counts those by key again.

The hand-written queries are one ``applyInPandasWithState`` each, with the same source and a sink that collects on the
driver, as the plans' does:

* *per key*: as one writes it, ``groupBy("key")`` with a count as the state of each of the 20 groups;
* *two groups*: the hardest opponent: groups are two hash buckets, which keep the counts of their keys as bytes, and
  ``groupBy`` puts one into each partition. It is what a plan does inside, without the plan.

The source of the first table is Spark's own ``rate-micro-batch``, which costs next to nothing; that of the second is
written in Python (``DataGeneratorSource`` in the plans, a ``DataSourceStreamReader`` by hand), where every micro-batch
asks a Python process for offsets. The queries take turns, each with a checkpoint of its own; the first turn is only to
warm everything up.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
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
    run_batches,
    spark_session,
)
from dsv2 import Collector, ExecutionEnvironment, PartitionedContext, Trigger
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.streams import NonKeyedPartitionStream
from runtime_spark.layout import spark_partition
from runtime_spark.query import StreamingJob

__all__ = ("main",)

NAME = "batch_overhead"
RECORDS = 100
KEYS = 20
PARTITIONS = 2
LEVELS = (1, 2, 3)
BASELINE = "by hand, per key"
PER_LEVEL = 0.5
"""A plan of L levels is to cost at most 1 + PER_LEVEL * (L - 1) times the hand-written query."""

_WARM_UP = 3  # micro-batches of each query: its first ones compile code and open state stores

SHORT = {"rounds": 1, "skip": 0, "batches": 1}

# One bucket per partition, as a plan places its subtasks.
_BUCKETS = [next(n for n in range(100) if spark_partition(n, PARTITIONS) == index) for index in range(PARTITIONS)]

Start = Callable[[str], StreamingQuery]
"""Starts a query that keeps its checkpoint in the given folder."""


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
    parser.add_argument("--rounds", type=int, default=4, help="in which every query runs once (4)")
    parser.add_argument("--skip", type=int, default=1, help="rounds before those, to warm up (1)")
    parser.add_argument("--batches", type=int, default=10, help="that are measured of a query, after three (10)")
    options = parser.parse(arguments, SHORT)
    with spark_session("batch overhead benchmark") as spark:
        report = Report(NAME, "The overhead of a micro-batch", conditions(spark, NAME, arguments))
        spark.dataSource.register(CountingSource)
        for source, contestants in _contestants(spark).items():
            _compare(report, source, _measure(contestants, options))
    report.publish(options.results)
    return 0


def _contestants(spark: SparkSession) -> dict[str, dict[str, Start]]:
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", RECORDS)
    rate = rate.option("numPartitions", PARTITIONS)
    python = spark.readStream.format(CountingSource.name())

    def from_rate(env: ExecutionEnvironment) -> NonKeyedPartitionStream[Item]:
        return env.from_dataframe(rate.load(), Item)

    def from_python(env: ExecutionEnvironment) -> NonKeyedPartitionStream[Item]:
        return env.from_source(DataGeneratorSource(Item, records_per_batch=RECORDS))

    sources = {"source of Spark's own": (rate.load, from_rate), "source in Python": (python.load, from_python)}
    return {
        name: {
            BASELINE: by_hand_per_key(load()),
            "by hand, two groups": by_hand_two_groups(load()),
            **{f"plan, {levels} level{'s'[: levels - 1]}": plan_of(spark, levels, read) for levels in LEVELS},
        }
        for name, (load, read) in sources.items()
    }


def _measure(contestants: dict[str, Start], options: argparse.Namespace) -> dict[str, Sample]:
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(options.skip + options.rounds):
        for name, start in contestants.items():
            with checkpoint() as folder:
                query = start(folder)
                run_batches(query, _WARM_UP + options.batches)
                if turn >= options.skip:
                    seconds[name] += batch_seconds(query, _WARM_UP, options.batches)
    return {name: Sample.of(values) for name, values in seconds.items()}


def _compare(report: Report, source: str, samples: dict[str, Sample]) -> None:
    base = samples[BASELINE].median
    rows = [
        (name, round(sample.median * 1000), sample.spread, sample.median / base, len(sample.seconds))
        for name, sample in samples.items()
    ]
    title = f"{source[0].upper()}{source[1:]}: {RECORDS} records a micro-batch"
    report.table(title, ("query", "median ms", "spread", f"times {BASELINE}", "batches"), rows)
    for levels in LEVELS:
        name = f"plan, {levels} level{'s'[: levels - 1]}"
        report.at_most(f"{source}: {name}", samples[name].median / base, 1 + PER_LEVEL * (levels - 1))


def plan_of(
    spark: SparkSession, levels: int, read: Callable[[ExecutionEnvironment], NonKeyedPartitionStream[Item]]
) -> Start:
    """A plan that counts ``levels`` times in a row."""

    def start(folder: str) -> StreamingQuery:
        env = ExecutionEnvironment.get_instance(spark=spark)
        env.set_parallelism(PARTITIONS)
        stream: NonKeyedPartitionStream[Any] = read(env)
        for _ in range(levels):
            stream = stream.key_by(key_of).process(CountPerKey())
        stream.to_sink(ForeachBatchSink(lambda records, batch_id: None))
        trigger = Trigger.processing_time()
        job = env.execute_async(f"count, {levels} levels", checkpoint_location=folder, trigger=trigger)
        assert isinstance(job, StreamingJob)
        return job.query

    return start


def by_hand_per_key(values: DataFrame) -> Start:
    """A group for each key."""

    def count(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        total = (state.get[0] if state.exists else 0) + sum(map(len, frames))
        state.update((total,))
        yield pd.DataFrame({"key": [key[0]], "count": [total]})

    groups = values.selectExpr(f"value % {KEYS} as key").groupBy("key")
    return _started(groups.applyInPandasWithState(count, "key long, count long", "count long", "append", "NoTimeout"))


def by_hand_two_groups(values: DataFrame) -> Start:
    """A group for each partition."""

    def count(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        counts: Counter[int] = pickle.loads(state.get[0]) if state.exists else Counter()  # noqa: S301 - our own bytes
        touched: Counter[int] = Counter()
        for frame in frames:
            touched.update(frame["key"].tolist())
        counts.update(touched)
        state.update((pickle.dumps(counts),))
        yield pd.DataFrame({"key": list(touched), "count": [counts[key] for key in touched]})

    buckets = f"array({', '.join(map(str, _BUCKETS))})[value % {PARTITIONS}] as bucket"
    groups = values.selectExpr(f"value % {KEYS} as key", buckets).groupBy("bucket")
    return _started(
        groups.applyInPandasWithState(count, "key long, count long", "counts binary", "append", "NoTimeout")
    )


def _started(counts: DataFrame) -> Start:
    def collect(batch: DataFrame, batch_id: int) -> None:
        batch.collect()

    def start(folder: str) -> StreamingQuery:
        writer = counts.writeStream.option("checkpointLocation", folder).trigger(processingTime="0 seconds")
        return writer.foreachBatch(collect).start()

    return start


class CountingSource(DataSource):
    """The numbers 0, 1, 2, …: ``RECORDS`` of them in a micro-batch, in ``PARTITIONS`` partitions."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return "value long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return CountingReader()


class CountingReader(DataSourceStreamReader):
    """Offsets are the number that comes next."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"next": 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"next": start["next"] + RECORDS}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(range(start["next"] + part, end["next"], PARTITIONS)) for part in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"value": list(partition.value)})


if __name__ == "__main__":
    # Run the importable module, not this copy of it: Spark's workers find classes by the name of their module.
    from benchmarks import batch_overhead

    sys.exit(batch_overhead.main())
