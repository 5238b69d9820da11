"""The sources of a plan as one DataFrame of frames, streaming or batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dsv2.clock import Clock
from dsv2.context import RuntimeExecutionMode
from dsv2.errors import ConfigurationError, SchemaError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.sources import DataFrameSource, IndexedSource
from runtime_spark.closures import from_bytes, to_bytes
from runtime_spark.dataframe_source import DataFrameFrames
from runtime_spark.failures import marked_failures
from runtime_spark.frame_source import (
    Feed,
    IndexedFeed,
    Split,
    StartFeed,
    TickFeed,
    frame_source_class,
)
from runtime_spark.rows import ROW_SCHEMA, literal_rows, to_arrow
from runtime_spark.schema import check_readable
from runtime_spark.worker import load_job

__all__ = ("check_source", "source_frames")

_STARTS = itertools.count()  # Spark warns when a name is registered again


def check_source(operator: Operator) -> None:
    """Raise a ``PlanError`` for a source that cannot be read."""
    source, where = operator.body, f"The source {operator}, defined at {operator.location}"
    if isinstance(source, DataFrameSource):
        if not isinstance(source.dataframe, DataFrame):
            raise ConfigurationError(f"{where}, needs a Spark DataFrame, not {type(source.dataframe).__name__}.")
        try:
            check_readable(source.record_type, source.dataframe.schema, source.split_by)
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from error
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
        name = f"dsv2_{job_key}_{operator.id}_{next(_STARTS)}"
        spark.dataSource.register(frame_source_class(name, feed, packed, operator.id, clock))
        return spark.readStream.format(name).load()

    if isinstance(source, IndexedSource):
        return stream(IndexedFeed(source)) if streaming else _batch_frames(spark, source, operator, packed)
    assert isinstance(source, DataFrameSource)
    dataframe = source.dataframe
    assert isinstance(dataframe, DataFrame)
    frames = DataFrameFrames(spark, dataframe, source, operator, packed)
    if dataframe.isStreaming:
        return frames.streaming(stream(StartFeed()))
    if not streaming:
        return frames.batch()
    return frames.chunked(lambda count: stream(TickFeed(count)))


def _batch_frames(spark: SparkSession, source: IndexedSource[Any], operator: Operator, packed: bytes) -> DataFrame:
    parallelism, count, operator_id = operator.parallelism, source.count, operator.id
    assert count is not None
    feed = IndexedFeed(source)
    if feed.made_on_driver:
        job = load_job(packed)
        splits = [Split(subtask, 0, count, True, True) for subtask in range(parallelism)]
        portions = [portion for split in splits for portion in feed.rows(job, operator_id, split)]
        return literal_rows(spark, [row for portion in portions for row in portion])
    pickled = to_bytes(feed)

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job, own = load_job(packed), from_bytes(pickled)
        with marked_failures():
            for batch in batches:
                for subtask in batch.column(0).to_pylist():
                    for rows in own.rows(job, operator_id, Split(subtask, 0, count, True, True)):
                        yield to_arrow(rows)

    return spark.range(0, parallelism, 1, parallelism).mapInArrow(read, ROW_SCHEMA)
