"""The rows of a savepoint as frames for the subtasks that need them, in the first micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2.base.folders import literal_path
from dsv2.runtime.state.row_routing import RowRouter
from dsv2.savepoint.reader import SavepointReader
from dsv2.savepoint.tables import COLUMNS
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.row_payload import EMPTY_ROWS, encode_rows
from runtime_spark.frames.rows import COLUMNS as FRAME_COLUMNS
from runtime_spark.frames.rows import (
    MAX_FRAME_BYTES,
    OUTPUT_BYTES,
    RESTORE_CHANNEL,
    ROW_SCHEMA,
    Row,
    literal_rows,
    to_arrow,
)
from runtime_spark.frames.worker import load_job

RESTORE_SETTINGS: Mapping[str, str] = MappingProxyType(
    {"spark.sql.cartesianProductExec.buffer.in.memory.threshold": "16"}  # frames that a task holds; others are spilled
)
"""Settings for the start of a query that restores a savepoint."""

_SEQ = -1  # before all frames
_ROUTED = ("subtask", "kind", "key_bytes")


def restore_frames(
    spark: SparkSession, savepoint: SavepointReader | None, packed: bytes, ticks: DataFrame
) -> DataFrame:
    """Return the frames that restore the state of a job.

    Args:
        spark: The session.
        savepoint: The savepoint. None: it was restored earlier, and there are no frames.
        packed: The job for the workers.
        ticks: A stream that has one row, in the first micro-batch of the checkpoint.
    """
    if savepoint is None:
        frames = literal_rows(spark, [])
    else:
        frames = literal_rows(spark, empty_frames(packed))
        if savepoint.info.tables:
            frames = frames.unionAll(_frames(spark, savepoint, packed))
    # A Cartesian product with a stream that has no rows has no tasks, so the savepoint is read only once. Any other
    # join would read it in every micro-batch.
    once = ticks.select(F.col("seq").alias("tick")).crossJoin(frames.hint("shuffle_replicate_nl"))
    return once.select(*FRAME_COLUMNS)


def empty_frames(packed: bytes) -> list[Row]:
    """Return a frame without rows for each subtask, so that it exists from the first micro-batch on."""
    job = load_job(packed)
    codec, operators, layout = job.codec(), job.plan.operators, job.layout
    return [
        (slot, RESTORE_CHANNEL, _SEQ, encode_rows(operators[head].uid, EMPTY_ROWS, codec))
        for slot, (head, _) in sorted(layout.addresses.items())
        if any(head in level for level in layout.levels)
    ]


def _frames(spark: SparkSession, savepoint: SavepointReader, packed: bytes) -> DataFrame:
    folder, tables = savepoint.folder, savepoint.info.tables
    by_uid: dict[str, list[str]] = {}
    for table in tables:
        by_uid.setdefault(table.id.uid, []).append(literal_path(folder.uri(table.folder)))
    job = load_job(packed)
    in_plan = {operator.uid for chain in job.plan.chains.values() for operator in chain}
    schema = "subtask int, kind string, state string, key_bytes binary, value_bytes binary"
    parts = [
        spark.read.schema(schema).parquet(*paths).select(F.lit(uid).alias("uid"), *COLUMNS)
        for uid, paths in sorted(by_uid.items())
        if uid in in_plan
    ]
    if not parts:
        return literal_rows(spark, [])
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.unionAll(part)
    return rows.mapInArrow(FrameMaker(packed), ROW_SCHEMA)


@dataclass(frozen=True)
class FrameMaker:
    """Routes rows to slots. Sent to the tasks."""

    packed: bytes = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for ``mapInArrow``."""
        with marked_failures():
            routes = _Routes(self.packed)
            frames: list[Row] = []
            size = 0
            for batch in batches:
                for frame in routes.frames_of(batch):
                    frames.append(frame)
                    size += len(frame[3])
                    if size >= OUTPUT_BYTES:
                        yield to_arrow(frames)
                        frames, size = [], 0
            yield to_arrow(frames)


class _Routes:
    """Makes the frames of rows, for the slots that need them."""

    def __init__(self, packed: bytes) -> None:
        self._job = load_job(packed)
        self._codec = self._job.codec()
        self._operators: dict[str, tuple[int, RowRouter]] = {
            operator.uid: (head, RowRouter(operator, self._codec))
            for head, chain in self._job.plan.chains.items()
            for operator in chain
        }

    def frames_of(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """Return the frames of rows with their uids."""
        uids = batch.column(0)
        for uid in uids.unique().to_pylist():
            rows = batch.filter(pc.equal(uids, uid)).select(list(COLUMNS))
            head, router = self._operators[uid]
            of_subtasks: dict[int, list[int]] = {}
            columns = (rows.column(name).to_pylist() for name in _ROUTED)
            for index, routed in enumerate(zip(*columns, strict=True)):
                for subtask in router.subtasks_of(*routed):
                    of_subtasks.setdefault(subtask, []).append(index)
            for subtask, indices in sorted(of_subtasks.items()):
                slot = self._job.layout.slots[head, subtask]
                for payload in self._payloads(uid, rows.take(pa.array(indices, pa.int32()))):
                    yield slot, RESTORE_CHANNEL, _SEQ, payload

    def _payloads(self, uid: str, rows: pa.RecordBatch) -> Iterator[bytes]:
        """Encode rows. Those that are too large for a frame are split."""
        if rows.nbytes > MAX_FRAME_BYTES and rows.num_rows > 1:
            half = rows.num_rows // 2
            yield from self._payloads(uid, rows.slice(0, half))
            yield from self._payloads(uid, rows.slice(half))
        else:
            yield encode_rows(uid, rows, self._codec)
