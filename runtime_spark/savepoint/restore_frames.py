"""The rows of a savepoint as frames for the subtasks that need them, in the first micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2.folders import literal_path
from dsv2.graph import Operator
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.row_routing import RowRouter
from dsv2.runtime.state.rows import RowKind, StateRow
from dsv2.savepoint.tables import COLUMNS
from runtime_spark.failures import marked_failures
from runtime_spark.layout import Layout
from runtime_spark.rows import COLUMNS as FRAME_COLUMNS
from runtime_spark.rows import MAX_FRAME_BYTES, OUTPUT_BYTES, RESTORE_CHANNEL, ROW_SCHEMA, Row, literal_rows, to_arrow
from runtime_spark.savepoint.restoration import OpenSavepoint
from runtime_spark.savepoint.row_payload import encode_rows
from runtime_spark.worker import load_job

__all__ = ("RESTORE_SETTINGS", "FrameMaker", "restore_frames")

RESTORE_SETTINGS: Mapping[str, str] = MappingProxyType(
    {"spark.sql.cartesianProductExec.buffer.in.memory.threshold": "16"}  # frames that a task holds; others are spilled
)
"""Settings for the start of a query that restores a savepoint."""

_SEQ = -1  # before all frames
_ROW_BYTES = 40  # of a row without its key and value


def restore_frames(
    spark: SparkSession, savepoint: OpenSavepoint | None, layout: Layout, packed: bytes, ticks: DataFrame
) -> DataFrame:
    """Return the frames that restore the state of a job.

    Args:
        spark: The session.
        savepoint: The savepoint. None: it was restored earlier, and there are no frames.
        layout: The layout of the job.
        packed: The job for the workers.
        ticks: A stream that has one row, in the first micro-batch of the checkpoint.
    """
    if savepoint is None:
        frames = literal_rows(spark, [])
    else:
        # Each subtask receives a frame, even without rows, so that it exists from the first micro-batch on.
        slots = [slot for slot, (head, _) in layout.addresses.items() if any(head in level for level in layout.levels)]
        codec = load_job(packed).codec()
        frames = literal_rows(spark, [(slot, RESTORE_CHANNEL, _SEQ, encode_rows([], codec)) for slot in sorted(slots)])
        if savepoint.info.tables:
            frames = frames.unionAll(_frames(spark, savepoint, packed))
    # A Cartesian product with a stream that has no rows has no tasks, so the savepoint is read only once. Any other
    # join would read it in every micro-batch.
    once = ticks.select(F.col("seq").alias("tick")).crossJoin(frames.hint("shuffle_replicate_nl"))
    return once.select(*FRAME_COLUMNS)


def _frames(spark: SparkSession, savepoint: OpenSavepoint, packed: bytes) -> DataFrame:
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
            job = load_job(self.packed)
            routes = _Routes(self.packed)
            pending = _Pending(job.codec())
            for batch in batches:
                for uid, subtask, kind, *rest in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    row = StateRow(subtask, RowKind(kind), *rest)
                    for slot in routes.slots_of(uid, row):
                        pending.add(slot, uid, row)
                    if pending.is_large:
                        yield to_arrow(pending.take())
            yield to_arrow(pending.take())


class _Routes:
    """Finds the slots that need a row."""

    def __init__(self, packed: bytes) -> None:
        self._job = load_job(packed)
        plan, codec = self._job.plan, self._job.codec()
        self._operators: dict[str, tuple[int, Operator]] = {
            operator.uid: (head, operator) for head, chain in plan.chains.items() for operator in chain
        }
        self._routers = {uid: RowRouter(operator, codec) for uid, (_, operator) in self._operators.items()}

    def slots_of(self, uid: str, row: StateRow) -> Iterator[int]:
        head, _ = self._operators[uid]
        for subtask in self._routers[uid].subtasks_of(row):
            yield self._job.layout.slots[head, subtask]


class _Pending:
    """Rows that are gathered to frames, by slot."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._by_slot: dict[int, list[tuple[str, StateRow]]] = {}
        self._sizes: dict[int, int] = {}
        self._size = 0
        self._full: list[Row] = []

    def add(self, slot: int, uid: str, row: StateRow) -> None:
        size = _ROW_BYTES + len(row.key or b"") + len(row.value or b"")
        self._by_slot.setdefault(slot, []).append((uid, row))
        self._sizes[slot] = self._sizes.get(slot, 0) + size
        self._size += size
        if self._sizes[slot] >= MAX_FRAME_BYTES:
            self._finish(slot)

    @property
    def is_large(self) -> bool:
        return self._size >= OUTPUT_BYTES

    def take(self) -> list[Row]:
        for slot in sorted(self._by_slot):
            self._finish(slot)
        rows, self._full, self._size = self._full, [], 0
        return rows

    def _finish(self, slot: int) -> None:
        self._full.append((slot, RESTORE_CHANNEL, _SEQ, encode_rows(self._by_slot.pop(slot), self._codec)))
        del self._sizes[slot]
