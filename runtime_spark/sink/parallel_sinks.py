"""Writes to sinks in Spark tasks, all sinks in one pass. One task writes all frames of a subtask, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from dsv2.base.log_scope import LogScope, in_scope
from dsv2.graph import Operator
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.report.sink_calls import begin, name_of, write_in_task
from dsv2.runtime.serde.codec import Codec
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo, SinkRunInfo
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.rows import COLUMNS, ROW_SCHEMA, decode_frame, from_arrow, to_arrow
from runtime_spark.frames.rows import Row as FrameRow
from runtime_spark.frames.worker import load_job, patient_collector
from runtime_spark.frames.worker_resources import worker_resources
from runtime_spark.platform.closures import from_bytes, to_bytes

_SLOT = COLUMNS.index("slot")


@dataclass(frozen=True)
class _Target:
    """A sink as its tasks see it."""

    name: str
    info: SinkInfo
    pickled: bytes


class ParallelSinks:
    """Writes the micro-batches of one run to the parallel sinks ``operators`` of a job. False if there are none."""

    def __init__(
        self, operators: Sequence[Operator], layout: Layout, packed: bytes, job_id: str, run: SinkRunInfo
    ) -> None:
        """``job_id``: Identifies the checkpoint. ``run``: The run that writes."""
        self._sinks: dict[str, ParallelSink[Any]] = {}
        self._targets: dict[str, _Target] = {}
        self._places: dict[int, tuple[str, int]] = {}  # slot -> (uid, subtask)
        for operator in operators:
            assert isinstance(operator.body, ParallelSink)
            uid, slots = operator.uid, layout.slots_of(operator)
            self._sinks[uid] = operator.body
            info = SinkInfo(job_id, uid, len(slots), run)
            self._targets[uid] = _Target(name_of(operator), info, to_bytes(operator.body))
            self._places |= {slot: (uid, subtask) for subtask, slot in enumerate(slots)}
        self._partitions = layout.partitions
        self._packed = packed
        self._begun = False

    def __bool__(self) -> bool:
        return bool(self._sinks)

    @property
    def slots(self) -> set[int]:
        """The slots of the sinks."""
        return set(self._places)

    def begin(self, batch_id: int) -> None:
        """Call ``begin`` of the sinks before the first micro-batch of the run. Raises ``JobError``."""
        if not self._begun:
            for uid, sink in self._sinks.items():
                begin(sink, self._targets[uid].info, batch_id, self._targets[uid].name)
            self._begun = True

    def write(self, frames: DataFrame, batch_id: int) -> list[Row]:
        """Write the records in ``frames`` that are for the sinks, and return all other rows.

        Raises ``JobError``, or Spark's error for it.
        """
        packed, targets, places = self._packed, self._targets, self._places

        def write_slots(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            job = load_job(packed)
            codec, scope = job.codec(), LogScope(job.plan.job_name)
            sinks: dict[str, ParallelSink[Any]] = {}
            with marked_failures(), worker_resources(), patient_collector(), in_scope(scope):
                for slot, rows in groupby(from_arrow(batches), key=itemgetter(_SLOT)):
                    if slot not in places:
                        yield to_arrow(list(rows))
                        continue
                    uid, subtask = places[slot]
                    target = targets[uid]
                    if uid not in sinks:
                        sinks[uid] = from_bytes(target.pickled)
                    own = _record_batches(rows, codec, target.name)
                    if (first := next(own, None)) is not None:
                        batch = SinkBatch(target.info, subtask, batch_id, chain([first], own))
                        write_in_task(sinks[uid], batch, target.name)

        placed = frames.repartition(self._partitions, "slot").sortWithinPartitions("slot", "seq", "channel")
        return placed.mapInArrow(write_slots, ROW_SCHEMA).collect()


def _record_batches(rows: Iterable[FrameRow], codec: Codec, owner: str) -> Iterator[RecordBatch[object]]:
    for _, _, _, payload in rows:
        batch, _ = decode_frame(codec, payload, owner)
        if batch:
            yield batch
