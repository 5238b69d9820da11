"""The queries of ``batch_overhead``, which count per key, as plans and hand-written.

They read ``RECORDS`` records with ``KEYS`` keys per micro-batch, in ``PARTITIONS`` partitions. Sinks collect on the
driver.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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

from benchmarks.common import own_time  # noqa: F401 - so that workers and planners import it
from dsv2 import Collector, ExecutionEnvironment, NonKeyedPartitionStream, PartitionedContext, Trigger
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from runtime_spark.frames.layout import spark_partition
from runtime_spark.frames.session import starting
from runtime_spark.job.query import StreamingJob

__all__ = (
    "PARTITIONS",
    "RECORDS",
    "Run",
    "Source",
    "by_hand_in_stages",
    "by_hand_per_key",
    "from_files",
    "from_python",
    "plan_of",
    "write_files",
)

RECORDS = 100
KEYS = 20
PARTITIONS = 2

_CHECK = "spark.sql.streaming.unsupportedOperationCheck"
_SCHEMA = "value long"

# One bucket per partition, as a plan places its subtasks.
_BUCKETS = [next(n for n in range(100) if spark_partition(n, PARTITIONS) == index) for index in range(PARTITIONS)]

Run = Callable[[str], StreamingQuery]
"""Runs a query to its end, with its checkpoint in the given folder."""
Source = tuple[DataFrame, Callable[[ExecutionEnvironment], NonKeyedPartitionStream["Item"]]]
"""The same records for hand-written queries and for plans."""


class Item(NamedTuple):
    """A record. ``value`` is its index."""

    value: int


class Count(NamedTuple):
    """The count of ``key`` so far."""

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
    """Return the key of a record of any level."""
    return record.value % KEYS if isinstance(record, Item) else record.key


def write_files(folder: str, batches: int) -> None:
    """Write a file for each of ``batches`` micro-batches."""
    for number in range(batches):
        values = range(number * RECORDS, (number + 1) * RECORDS)
        pq.write_table(pa.table({"value": list(values)}), f"{folder}/{number:04d}.parquet")


def from_files(spark: SparkSession, folder: str) -> Source:
    """A source that reads the files of ``write_files``."""
    values = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(folder)
    return values, lambda env: env.from_dataframe(values, Item)


def from_python(spark: SparkSession, batches: int) -> Source:
    """A Python source with the same records."""
    spark.dataSource.register(CountingSource)
    values = spark.readStream.format(CountingSource.name()).option("count", RECORDS * batches).load()
    # One more micro-batch, because the last one of a generator also ends the input.
    generator = DataGeneratorSource(Item, count=RECORDS * (batches + 1), records_per_batch=RECORDS)
    return values, lambda env: env.from_source(generator)


def plan_of(spark: SparkSession, source: Source, levels: int) -> Run:
    """A plan with ``levels`` counts in sequence."""
    _, read = source

    def run(folder: str) -> StreamingQuery:
        env = ExecutionEnvironment.get_instance(spark=spark)
        env.set_parallelism(PARTITIONS)
        stream: NonKeyedPartitionStream[Any] = read(env)
        for _ in range(levels):
            stream = stream.key_by(key_of).process(CountPerKey())
        stream.to_sink(ForeachBatchSink(lambda records, batch_id: None))
        job = env.execute_async(f"{levels} levels", checkpoint_location=folder, trigger=Trigger.available_now())
        assert isinstance(job, StreamingJob)
        job.result()
        return job.query

    return run


def by_hand_per_key(source: Source, *, tuned: bool) -> Run:
    """A query with a group per key. ``tuned``: use the settings of a plan's query instead of Spark's defaults."""
    values, _ = source

    def count(key: tuple[int], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        total = (state.get[0] if state.exists else 0) + sum(map(len, frames))
        state.update((total,))
        yield pd.DataFrame({"key": [key[0]], "count": [total]})

    groups = values.selectExpr(f"value % {KEYS} as key").groupBy("key")
    counts = groups.applyInPandasWithState(count, "key long, count long", "count long", "append", "NoTimeout")
    return _writing(counts, tuned=tuned, unchecked=False)


def by_hand_in_stages(source: Source, stages: int, *, tuned: bool) -> Run:
    """A query with a group per partition, and ``stages`` counts in sequence."""
    values, _ = source

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
        # The bucket is also the projection between two stages without which Spark fails.
        bucket = f"array({', '.join(map(str, _BUCKETS))})[key % {PARTITIONS}] as bucket"
        groups = counts.selectExpr("key", bucket).groupBy("bucket")
        counts = groups.applyInPandasWithState(count, "key long, count long", "counts binary", "append", "NoTimeout")
    return _writing(counts, tuned=tuned, unchecked=stages > 1)


def _writing(counts: DataFrame, *, tuned: bool, unchecked: bool) -> Run:
    def collect(batch: DataFrame, batch_id: int) -> None:
        batch.collect()

    def run(folder: str) -> StreamingQuery:
        writer = counts.writeStream.option("checkpointLocation", folder).trigger(availableNow=True)
        spark = counts.sparkSession
        with (
            starting(spark, PARTITIONS, unchecked=unchecked, checkpoint=folder)
            if tuned
            else _as_it_is(spark, unchecked)
        ):
            query = writer.foreachBatch(collect).start()
        query.awaitTermination()
        return query

    return run


@contextmanager
def _as_it_is(spark: SparkSession, unchecked: bool) -> Iterator[None]:
    """Set only the option without which Spark rejects the query."""
    spark.conf.set(_CHECK, str(not unchecked).lower())
    yield
    spark.conf.unset(_CHECK)


class CountingSource(DataSource):
    """The numbers below the option ``count``: ``RECORDS`` per micro-batch, in ``PARTITIONS`` partitions."""

    @classmethod
    def name(cls) -> str:
        return "counting"

    def schema(self) -> str:
        return _SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return CountingReader(int(self.options["count"]))


class CountingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the next number."""

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
