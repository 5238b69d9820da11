"""The sources of a plan as one DataFrame of frames, streaming or batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import cloudpickle
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2.clock import Clock
from dsv2.context import RuntimeExecutionMode
from dsv2.errors import ConfigurationError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.runtime.keys import stable_hash
from dsv2.runtime.source_task import SourceTask
from dsv2.sources import DataFrameSource, IndexedSource
from runtime_spark.failures import marked_failures
from runtime_spark.frame_source import (
    DEFAULT_RECORDS_PER_BATCH,
    Feed,
    IndexedFeed,
    Split,
    StartFeed,
    TickFeed,
    frame_source_class,
)
from runtime_spark.rows import COLUMNS, ROW_SCHEMA, FrameEncoder, Row, to_arrow
from runtime_spark.schema import RecordReader, check_readable
from runtime_spark.worker import load_job

__all__ = ("check_source", "source_frames")

_ID = "__dsv2_id"
_LAST_SEQ = (1 << 63) - 1
_FRAMES_APART = 1 << 33  # how far monotonically_increasing_id sets partitions apart


def check_source(operator: Operator) -> None:
    """Raise a ``PlanError`` for a source that cannot be read."""
    source, where = operator.body, f"The source {operator}, defined at {operator.location}"
    if isinstance(source, DataFrameSource):
        if not isinstance(source.dataframe, DataFrame):
            raise ConfigurationError(f"{where}, needs a Spark DataFrame, not {type(source.dataframe).__name__}.")
        check_readable(source.record_type, source.dataframe.schema, source.split_by, where)
    elif not isinstance(source, IndexedSource):
        raise ConfigurationError(f"{where}, is of a kind that the Spark runtime does not know.")


def source_frames(spark: SparkSession, plan: Plan, packed: bytes, job_key: str, clock: Clock) -> DataFrame:
    """All sources of ``plan``, in their order, as frames for the first level and beyond."""
    frames = [
        _frames_of(spark, plan, operator, packed, job_key, clock)
        for operator in plan.operators
        if operator.kind is OperatorKind.SOURCE
    ]
    return reduce(DataFrame.unionAll, frames)


def _frames_of(
    spark: SparkSession, plan: Plan, operator: Operator, packed: bytes, job_key: str, clock: Clock
) -> DataFrame:
    source, streaming = operator.body, plan.mode is RuntimeExecutionMode.STREAMING

    def stream(feed: Feed) -> DataFrame:
        name = f"dsv2_{job_key}_{operator.id}"
        spark.dataSource.register(frame_source_class(name, feed, packed, operator.id, clock))
        return spark.readStream.format(name).load()

    if isinstance(source, IndexedSource):
        return stream(IndexedFeed(source)) if streaming else _batch_frames(spark, source, operator, packed)
    assert isinstance(source, DataFrameSource)
    dataframe = source.dataframe
    assert isinstance(dataframe, DataFrame)
    if dataframe.isStreaming:
        return _row_frames(dataframe, source, operator, packed, None).unionAll(stream(StartFeed()))
    begin, end = _control_rows(packed, operator.id)
    if not streaming:
        rows = _row_frames(dataframe, source, operator, packed, None)
        return rows.unionAll(_literal_rows(spark, begin)).unionAll(_literal_rows(spark, end))
    return _chunked(spark, source, dataframe, operator, packed, stream, begin, end)


def _batch_frames(spark: SparkSession, source: IndexedSource[Any], operator: Operator, packed: bytes) -> DataFrame:
    parallelism, count, operator_id = operator.parallelism, source.count, operator.id
    assert count is not None
    feed = IndexedFeed(source)
    if feed.made_on_driver:
        job = load_job(packed)
        splits = [Split(subtask, 0, count, True, True) for subtask in range(parallelism)]
        portions = [portion for split in splits for portion in feed.rows(job, operator_id, split)]
        return _literal_rows(spark, [row for portion in portions for row in portion])
    pickled = cloudpickle.dumps(feed)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job, own = load_job(packed), cloudpickle.loads(pickled)
        with marked_failures():
            for batch in batches:
                for subtask in batch.column(0).to_pylist():
                    for rows in own.rows(job, operator_id, Split(subtask, 0, count, True, True)):
                        yield to_arrow(rows)

    return spark.range(0, parallelism, 1, parallelism).mapInArrow(read, ROW_SCHEMA)


def _row_frames(
    dataframe: DataFrame, source: DataFrameSource[Any], operator: Operator, packed: bytes, rows_per_chunk: int | None
) -> DataFrame:
    """Rows as frames. With ``rows_per_chunk`` a column ``chunk`` counts portions within each partition."""
    columns, split_by, parallelism, operator_id = dataframe.columns, source.split_by, operator.parallelism, operator.id
    reader = RecordReader(source.record_type, columns)
    needed = list(dict.fromkeys([*reader.columns, *([split_by] if split_by else [])]))
    chunked = rows_per_chunk is not None
    size = rows_per_chunk or (1 << 62)

    def to_frames(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job = load_job(packed)
        with marked_failures():
            for batch in batches:
                first_id = batch.column(batch.num_columns - 1)[0].as_py()
                chunk, offset = divmod(first_id % _FRAMES_APART, size)
                start = 0
                while start < batch.num_rows:
                    piece = batch.slice(start, size - offset)
                    encoder = FrameEncoder(job.layout, job.codec(), first_id + start)
                    subtasks = _subtasks(piece, split_by, first_id // _FRAMES_APART, parallelism)
                    for subtask, records in _by_subtask(reader.read(piece), subtasks):
                        task = SourceTask(job.plan, job.plan.operators[operator_id], subtask, encoder.emit)
                        task.send(records, first_id + start)
                        task.flush()
                    rows = to_arrow(encoder.take())
                    yield rows.append_column("chunk", pa.array([chunk] * rows.num_rows)) if chunked else rows
                    start, chunk, offset = start + piece.num_rows, chunk + 1, 0

    selected = dataframe.select(*needed).withColumn(_ID, F.monotonically_increasing_id())
    return selected.mapInArrow(to_frames, f"{ROW_SCHEMA}, chunk long" if chunked else ROW_SCHEMA)


def _subtasks(batch: pa.RecordBatch, split_by: str | None, partition: int, parallelism: int) -> list[int] | int:
    if split_by is None:
        return partition % parallelism
    known: dict[Any, int] = {}
    values = batch.column(batch.schema.get_field_index(split_by)).to_pylist()
    return [known.setdefault(v, stable_hash(v) % parallelism) if v not in known else known[v] for v in values]


def _by_subtask(records: list[Any], subtasks: list[int] | int) -> list[tuple[int, list[Any]]]:
    if isinstance(subtasks, int):
        return [(subtasks, records)]
    groups: dict[int, list[Any]] = {}
    for subtask, record in zip(subtasks, records, strict=True):
        groups.setdefault(subtask, []).append(record)
    return sorted(groups.items())


def _control_rows(packed: bytes, operator_id: int) -> tuple[list[Row], list[Row]]:
    """The frames that open and end every channel of a source."""
    job = load_job(packed)
    operator = job.plan.operators[operator_id]
    begin, end = FrameEncoder(job.layout, job.codec(), -1), FrameEncoder(job.layout, job.codec(), _LAST_SEQ)
    for subtask in range(operator.parallelism):
        for encoder, action in ((begin, SourceTask.start), (end, SourceTask.end)):
            task = SourceTask(job.plan, operator, subtask, encoder.emit)
            action(task)
            task.flush()
    return [(s, c, -1, p) for s, c, _, p in begin.take()], [(s, c, _LAST_SEQ, p) for s, c, _, p in end.take()]


def _chunked(
    spark: SparkSession,
    source: DataFrameSource[Any],
    dataframe: DataFrame,
    operator: Operator,
    packed: bytes,
    stream: Callable[[Feed], DataFrame],
    begin: list[Row],
    end: list[Row],
) -> DataFrame:
    """A batch DataFrame in a streaming job: a stream of chunk numbers, joined with its rows by chunk."""
    counts = dataframe.groupBy(F.spark_partition_id()).count().select("count").collect()
    largest = max((row[0] for row in counts), default=0)
    per_batch = source.records_per_batch or DEFAULT_RECORDS_PER_BATCH
    rows_per_chunk = max(1, per_batch // max(1, len(counts)))
    chunks = max(1, -(-largest // rows_per_chunk))
    frames = _row_frames(dataframe, source, operator, packed, rows_per_chunk)
    frames = frames.unionAll(_literal_rows(spark, begin).withColumn("chunk", F.lit(0).cast("long")))
    frames = frames.unionAll(_literal_rows(spark, end).withColumn("chunk", F.lit(chunks - 1).cast("long")))
    ticks = stream(TickFeed(chunks)).select(F.col("seq").alias("chunk"))
    return ticks.join(frames, "chunk").select(*COLUMNS)


def _literal_rows(spark: SparkSession, rows: list[Row]) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_batches([to_arrow(rows)]), ROW_SCHEMA)
