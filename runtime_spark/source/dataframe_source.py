"""Converts the rows of a Spark DataFrame to frames."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.storagelevel import StorageLevel

from dsv2.arrow import records_of
from dsv2.arrow.schema import can_be_columns
from dsv2.base.garbage_collector import patient_collector
from dsv2.checkpoint.task_report import TaskReport
from dsv2.graph import Operator
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.sources.indexed_planner import DEFAULT_RECORDS_PER_BATCH
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.state.key_groups import stable_hash
from dsv2.sources import DataFrameSource
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.rows import COLUMNS, ROW_SCHEMA, FrameEncoder, Row, literal_rows, to_arrow
from runtime_spark.frames.schema import RecordReader
from runtime_spark.frames.worker import WorkerJob, load_job
from runtime_spark.frames.worker_resources import worker_resources
from runtime_spark.platform.arrow_schemas import arrow_schema

_ID = "__dsv2_id"
_PARTITION_STRIDE = 1 << 33  # monotonically_increasing_id gives this distance to the first rows of two partitions
_FRAMES_PER_ROW = 1 << 8  # the most that chained functions may emit for one row without losing the order
_SUBTASKS_PER_TASK = 64
_LAST_SEQ = (1 << 63) - 1


class DataFrameFrames:
    """Converts the rows of one DataFrame source to frames, ordered by partition and by row within it.

    Args:
        spark: The session.
        dataframe: The DataFrame of ``source``.
        source: The source.
        operator: Its operator in the plan.
        packed: The job for the workers.
        wants_columns: Whether a function or sink on tables receives the records. Rows are then converted to records
            only where they are needed.
    """

    def __init__(
        self,
        spark: SparkSession,
        dataframe: DataFrame,
        source: DataFrameSource[Any],
        operator: Operator,
        packed: bytes,
        *,
        wants_columns: bool,
    ) -> None:
        self._spark = spark
        self._source = source
        self._operator = operator
        self._packed = packed
        self._reader = RecordReader(source.record_type, dataframe.columns)
        as_columns = can_be_columns(source.record_type, arrow_schema(dataframe.schema, "UTC"))
        self._read = _ColumnReader(source.record_type).read if wants_columns and as_columns else self._reader.read
        needed = dict.fromkeys([*self._reader.columns, *([source.split_by] if source.split_by else [])])
        # The id is a column, because Spark may partition the data differently each time it evaluates it.
        self._rows = dataframe.select(*needed, F.monotonically_increasing_id().alias(_ID))

    def streaming(self, start: DataFrame) -> DataFrame:
        """Return the frames of a streaming DataFrame. ``start`` provides the frames that open its channels."""
        return self._frames().unionAll(start)

    def batch(self) -> DataFrame:
        """Return the frames of a batch DataFrame in a batch job."""
        return self._frames().unionAll(self._controls(_begin)).unionAll(self._controls(_end))

    def chunked(self, ticks: Callable[[int], DataFrame]) -> DataFrame:
        """Return the frames of a batch DataFrame in a streaming job, joined with ``ticks``, a stream of chunk numbers.

        The rows are persisted, so that they are computed once and keep their partitions.
        """
        rows = self._rows.persist(StorageLevel.MEMORY_AND_DISK)
        partition = F.floor(F.col(_ID) / _PARTITION_STRIDE).alias("partition")
        counts = sorted((row[0], row[1]) for row in rows.groupBy(partition).count().collect())
        firsts = itertools.accumulate((count for _, count in counts), initial=0)
        starts = {partition: first for (partition, _), first in zip(counts, firsts, strict=False)}
        size = self._source.records_per_batch or DEFAULT_RECORDS_PER_BATCH
        chunks = max(1, -(-sum(count for _, count in counts) // size))
        make = _frame_maker(self._read, self._source.split_by, self._operator, self._packed, starts, size)
        frames = rows.mapInArrow(make, f"{ROW_SCHEMA}, chunk long")
        for action, chunk in ((_begin, 0), (_end, chunks - 1)):
            controls = self._controls(action).withColumn("chunk", F.lit(chunk).cast("long"))
            frames = frames.unionAll(controls)
        numbers = ticks(chunks).select(F.col("seq").alias("chunk"))
        return frames.join(F.broadcast(numbers), "chunk").select(*COLUMNS)

    def _controls(self, make: Callable[[WorkerJob, int, int], list[Row]]) -> DataFrame:
        """Return the frames of ``make`` of all subtasks, made in tasks if there are many: they are P² in number."""
        parallelism, operator_id, packed = self._operator.parallelism, self._operator.id, self._packed
        if parallelism <= _SUBTASKS_PER_TASK:
            job = load_job(packed)
            rows = [row for subtask in range(parallelism) for row in make(job, operator_id, subtask)]
            return literal_rows(self._spark, rows)

        subtasks = self._spark.range(0, parallelism, 1, -(-parallelism // _SUBTASKS_PER_TASK))
        return subtasks.mapInArrow(_control_maker(make, operator_id, packed), ROW_SCHEMA)

    def _frames(self) -> DataFrame:
        make = _frame_maker(self._read, self._source.split_by, self._operator, self._packed, None, None)
        return self._rows.mapInArrow(make, ROW_SCHEMA)


class _ColumnReader:
    """Reads Arrow batches as records of one type, without conversion."""

    def __init__(self, record_type: type) -> None:
        self._record_type = record_type

    def read(self, batch: pa.RecordBatch) -> Sequence[Any]:
        """Return the records of ``batch``, which may have more columns."""
        return records_of(pa.Table.from_batches([batch]), self._record_type)


def _frame_maker(
    read: Callable[[pa.RecordBatch], Sequence[Any]],
    split_by: str | None,
    operator: Operator,
    packed: bytes,
    starts: dict[int, int] | None,
    chunk_size: int | None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that converts rows to frames.

    ``starts`` maps partitions to the positions of their first rows, if these are known. With ``chunk_size``, frames end
    at its multiples and have a column ``chunk``.
    """
    operator_id, parallelism, size = operator.id, operator.parallelism, chunk_size or 1 << 62

    def to_frames(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job, task = load_job(packed), TaskContext.get()
        with marked_failures(), worker_resources(), patient_collector():
            for batch in batches:
                first_id = batch.column(batch.num_columns - 1)[0].as_py()
                partition, row = divmod(first_id, _PARTITION_STRIDE)
                position = first_id if starts is None else starts[partition] + row
                done = 0
                while done < batch.num_rows:
                    piece = batch.slice(done, size - position % size)
                    subtasks = _subtasks(piece, split_by, task.partitionId() if task else 0, parallelism)
                    frames = to_arrow(_encode(job, operator_id, read(piece), subtasks, position))
                    if chunk_size is not None:
                        chunk = [position // size] * frames.num_rows
                        frames = frames.append_column("chunk", pa.array(chunk, pa.int64()))
                    yield frames
                    done, position = done + piece.num_rows, position + piece.num_rows

    return to_frames


def _encode(
    job: WorkerJob, operator_id: int, records: Sequence[Any], subtasks: list[int] | int, first_seq: int
) -> list[Row]:
    """Encode ``records``, each sent by one of ``subtasks`` of the source, as frames from ``first_seq`` on."""
    encoder = FrameEncoder(job.plan, job.layout, job.codec(), first_seq * _FRAMES_PER_ROW)
    for subtask, own in _by_subtask(records, subtasks):
        source = SourceTask(job.plan, job.plan.operators[operator_id], subtask, encoder.emit, job.source_functions)
        source.seek(first_seq)
        source.send(RecordBatch(own))
        source.flush()
        encoder.report(TaskReport(source.progress()))
    return encoder.take()


def _subtasks(batch: pa.RecordBatch, split_by: str | None, partition: int, parallelism: int) -> list[int] | int:
    if split_by is None:
        return partition % parallelism
    known: dict[Any, int] = {}
    values = batch.column(batch.schema.get_field_index(split_by)).to_pylist()
    return [known.setdefault(v, stable_hash(v) % parallelism) if v not in known else known[v] for v in values]


def _by_subtask(records: Sequence[Any], subtasks: list[int] | int) -> Sequence[tuple[int, Sequence[Any]]]:
    if isinstance(subtasks, int):
        return [(subtasks, records)]
    groups: dict[int, list[Any]] = {}
    for subtask, record in zip(subtasks, records, strict=True):
        groups.setdefault(subtask, []).append(record)
    return sorted(groups.items())


def _control_maker(
    make: Callable[[WorkerJob, int, int], list[Row]], operator_id: int, packed: bytes
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that converts the numbers of subtasks to their frames of ``make``."""

    def to_frames(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job = load_job(packed)
        for batch in batches:
            for subtask in batch.column(0).to_pylist():
                yield to_arrow(make(job, operator_id, subtask))

    return to_frames


def _begin(job: WorkerJob, operator_id: int, subtask: int) -> list[Row]:
    """Return the frames that open the channels of a subtask of a source."""
    return _controls_of(job, operator_id, subtask, SourceTask.start, -1)


def _end(job: WorkerJob, operator_id: int, subtask: int) -> list[Row]:
    """Return the frames that end the channels of a subtask of a source."""
    return _controls_of(job, operator_id, subtask, SourceTask.end, _LAST_SEQ)


def _controls_of(
    job: WorkerJob, operator_id: int, subtask: int, action: Callable[[SourceTask], None], seq: int
) -> list[Row]:
    encoder = FrameEncoder(job.plan, job.layout, job.codec(), seq)
    task = SourceTask(job.plan, job.plan.operators[operator_id], subtask, encoder.emit, job.source_functions)
    action(task)
    task.flush()
    encoder.report(TaskReport(task.progress()))
    return [(slot, channel, seq, payload) for slot, channel, _, payload in encoder.take()]
