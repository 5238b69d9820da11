"""Creates one DataFrame of frames, streaming or batch, for the sources of a plan."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from dsv2.base.clock import Clock
from dsv2.checkpoint.record import SourcePosition
from dsv2.errors import ConfigurationError, SchemaError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.model.context import RuntimeExecutionMode
from dsv2.sources import ContinuedDataFrameSource, DataFrameSource, IndexedSource, Source
from runtime_spark.checkpoint.record import NO_SOURCE, SourceStreams
from runtime_spark.checkpoint.source_reports import FileBoard, ReportFile
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.rows import ROW_SCHEMA, literal_rows, to_arrow
from runtime_spark.frames.schema import check_readable
from runtime_spark.frames.worker import load_job
from runtime_spark.frames.worker_resources import worker_resources
from runtime_spark.platform.closures import from_bytes, to_bytes
from runtime_spark.platform.streaming_dataframes import count_streams
from runtime_spark.source.dataframe_source import DataFrameFrames
from runtime_spark.source.feeds import IndexedFeed, SplitFeed, StartFeed, TickFeed, whole_orders
from runtime_spark.source.frame_source import Feed, feed_for
from runtime_spark.source.source_class import frame_source_class
from runtime_spark.source.source_read import IndexRange

_STARTS = itertools.count()  # Spark warns when a name is registered again


@dataclass(frozen=True)
class SourceOptions:
    """Settings of one run for the reading of sources.

    Attributes:
        reports: The folder for reader reports. None (default): reports are not passed on.
        target_batch_ms: How long a micro-batch should take. None (default): only the limits of the sources apply.
        positions: The positions at which sources of a new job continue, by uid, if it begins with a savepoint.
        only_available: The job ends when it has read the input that was available at its start.
    """

    reports: str | None = None
    target_batch_ms: int | None = None
    positions: Mapping[str, SourcePosition] = field(default_factory=dict)
    only_available: bool = False


def check_source(operator: Operator) -> None:
    """Raise a ``PlanError`` for a source that cannot be read."""
    source, where = operator.body, f"The source {operator}, defined at {operator.location}"
    if isinstance(source, ContinuedDataFrameSource):
        return  # check_passages has checked it
    if isinstance(source, DataFrameSource):
        if not isinstance(source.dataframe, DataFrame):
            raise ConfigurationError(f"{where}, requires a Spark DataFrame, got {type(source.dataframe).__name__}.")
        try:
            check_readable(source.record_type, source.dataframe.schema, source.split_by)
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}") from error
    elif not isinstance(source, IndexedSource | Source):
        raise ConfigurationError(f"{where}, has a type that the Spark runtime does not support.")


def source_frames(
    spark: SparkSession,
    plan: Plan,
    packed: bytes,
    job_key: str,
    clock: Clock,
    options: SourceOptions,
    section: int = 0,
    continued: DataFrame | None = None,
) -> DataFrame:
    """Return the frames of all sources of a section of ``plan``, in their order, for all its levels.

    ``continued``: The rows with which the section begins. None (default): it is the first one.
    """
    frames = [
        _frames_of(spark, plan, operator, packed, job_key, clock, options, continued)
        for operator in _sources_of(plan, section)
    ]
    return reduce(DataFrame.unionAll, frames)


def _sources_of(plan: Plan, section: int) -> list[Operator]:
    """The sources of a section. The one that continues the previous section comes first, as it contains its sources."""
    sources = [op for op in plan.operators if op.kind is OperatorKind.SOURCE and plan.sections[op.id] == section]
    return sorted(sources, key=lambda operator: not isinstance(operator.body, ContinuedDataFrameSource))


def _frames_of(
    spark: SparkSession,
    plan: Plan,
    operator: Operator,
    packed: bytes,
    job_key: str,
    clock: Clock,
    options: SourceOptions,
    continued: DataFrame | None,
) -> DataFrame:
    source, streaming = operator.body, plan.mode is RuntimeExecutionMode.STREAMING

    def stream(feed: Feed, splits_folder: str | None = None) -> DataFrame:
        feed.splits_folder = splits_folder
        position = options.positions.get(operator.uid)
        start = None if position is None else _own_offset(position)
        own = feed_for(plan, operator.id, feed)
        return _stream(spark, own, packed, job_key, operator.id, clock, start, only_available=options.only_available)

    if isinstance(source, IndexedSource):
        if not streaming:
            return _indexed_batch(spark, source, operator, packed)
        return stream(IndexedFeed(source, options.target_batch_ms), options.reports)
    if isinstance(source, Source):
        if not streaming:
            orders = whole_orders(source, operator, clock)
            return _batch_frames(spark, SplitFeed(source), orders, operator.id, packed)
        return stream(_split_feed(source, plan, operator, options), options.reports)
    assert isinstance(source, DataFrameSource)
    dataframe = continued if isinstance(source, ContinuedDataFrameSource) else source.dataframe
    assert isinstance(dataframe, DataFrame)
    wants_columns = plan.processes_columns(operator)
    frames = DataFrameFrames(spark, dataframe, source, operator, packed, wants_columns=wants_columns)
    if dataframe.isStreaming:
        return frames.streaming(stream(StartFeed()))
    if not streaming:
        return frames.batch()
    return frames.chunked(lambda count: stream(TickFeed(count)))


def source_streams(plan: Plan, *, restores: bool) -> list[SourceStreams]:
    """Return the sources of ``plan`` in the order in which Spark logs their offsets.

    ``restores``: Whether the checkpoint began with a savepoint. Each section then ends with a stream of its own, which
    has no source. The last one needs no entry.
    """
    streams: list[SourceStreams] = []
    for section in range(len(plan.passages) + 1):
        if restores and section > 0:
            streams.append((NO_SOURCE, 1))
        streams += [(operator.uid, 1 + _user_streams(operator)) for operator in _sources_of(plan, section)]
    return streams


def _user_streams(operator: Operator) -> int:
    source = operator.body
    dataframe = source.dataframe if isinstance(source, DataFrameSource) else None
    return count_streams(dataframe) if isinstance(dataframe, DataFrame) else 0


def tick(spark: SparkSession, packed: bytes, job_key: str, clock: Clock, *, only_available: bool) -> DataFrame:
    """Return a stream that has one row, in the first micro-batch of its checkpoint."""
    return _stream(spark, TickFeed(1), packed, job_key, 0, clock, None, only_available=only_available)


def _own_offset(position: SourcePosition) -> dict[str, Any]:
    """Without the offsets of the user's streams, which only their own options can set."""
    return {name: value for name, value in position.offset.items() if name != "streams"}


def _stream(
    spark: SparkSession,
    feed: Feed,
    packed: bytes,
    job_key: str,
    operator_id: int,
    clock: Clock,
    start: dict[str, Any] | None,
    *,
    only_available: bool,
) -> DataFrame:
    name = f"dsv2_{job_key}_{operator_id}_{next(_STARTS)}"
    source = frame_source_class(name, feed, packed, operator_id, clock, start, only_available=only_available)
    spark.dataSource.register(source)
    return spark.readStream.format(name).load()


def _split_feed(source: Source[Any, Any, Any], plan: Plan, operator: Operator, options: SourceOptions) -> SplitFeed:
    folder, target_ms = options.reports, options.target_batch_ms
    if folder is not None and plan.readers_report(operator):
        return SplitFeed(source, ReportFile(folder, operator.id), FileBoard(plan, folder), target_ms)
    if operator.error_policy is not None and operator.error_policy.max_failures is not None:
        raise ConfigurationError(
            f"The error policy of the source {operator}, defined at {operator.location}, has limit(total=...), which "
            f"requires a job that execute starts. For to_dataframe, use limit(per_micro_batch=...)."
        )
    if operator.watermarks is not None:
        raise ConfigurationError(
            f"The source {operator}, defined at {operator.location}, has its own watermarks, which require a job that "
            f"execute starts. For to_dataframe, process the stream with the generator (build_as_process_function)."
        )
    return SplitFeed(source, target_batch_ms=target_ms)


def _indexed_batch(spark: SparkSession, source: IndexedSource[Any], operator: Operator, packed: bytes) -> DataFrame:
    count = source.count
    assert count is not None
    splits = [IndexRange(subtask, 0, count, True, True) for subtask in range(operator.parallelism)]
    return _batch_frames(spark, IndexedFeed(source), splits, operator.id, packed)


def _batch_frames(
    spark: SparkSession, feed: Feed, portions: Sequence[Any], operator_id: int, packed: bytes
) -> DataFrame:
    """Return the rows of ``portions``, one for each subtask of the source."""
    job = load_job(packed)
    feed = feed_for(job.plan, operator_id, feed)
    if feed.made_on_driver:
        lists = (feed.rows(job, job.plan.operators[operator_id], portion) for portion in portions)
        return literal_rows(spark, [row for rows_of_portion in lists for rows in rows_of_portion for row in rows])
    pickled = to_bytes((feed, portions))

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job, (own, portions) = load_job(packed), from_bytes(pickled)
        with marked_failures(), worker_resources():
            for batch in batches:
                for subtask in batch.column(0).to_pylist():
                    for rows in own.rows(job, job.plan.operators[operator_id], portions[subtask]):
                        yield to_arrow(rows)

    return spark.range(0, len(portions), 1, len(portions)).mapInArrow(read, ROW_SCHEMA)
