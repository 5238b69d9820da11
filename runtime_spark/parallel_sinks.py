"""Writes to sinks in Spark tasks. One task writes all frames of a subtask, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from dsv2.graph import Operator
from dsv2.log_scope import LogScope, in_scope
from dsv2.record_batch import RecordBatch
from dsv2.runtime.report.sink_calls import begin, name_of, write_in_task
from dsv2.runtime.serde.codec import Codec
from dsv2.sinks import ParallelSink, SinkBatch, SinkInfo, SinkRunInfo
from runtime_spark.closures import from_bytes, to_bytes
from runtime_spark.failures import marked_failures
from runtime_spark.layout import Layout
from runtime_spark.rows import decode_frame
from runtime_spark.worker import load_job, patient_collector
from runtime_spark.worker_resources import worker_resources

__all__ = ("ParallelWriter",)

_WRITTEN = pa.schema([("subtask", pa.int32())])


class ParallelWriter:
    """Writes the micro-batches of one run to the sink ``operator``."""

    def __init__(self, operator: Operator, layout: Layout, packed: bytes) -> None:
        assert isinstance(operator.body, ParallelSink)
        self._sink: ParallelSink[object] = operator.body
        self._pickled = to_bytes(operator.body)
        self._name = name_of(operator)
        self._uid = operator.uid
        self._slots = layout.slots_of(operator)
        self._partitions = layout.partitions
        self._packed = packed
        self._begun = False

    def write(self, frames: DataFrame, job_id: str, run: SinkRunInfo, batch_id: int) -> None:
        """Write the records in ``frames`` that are for this sink. Raises ``JobError``, or Spark's error for it."""
        info = SinkInfo(job_id, self._uid, len(self._slots), run)
        if not self._begun:
            begin(self._sink, info, batch_id, self._name)
            self._begun = True
        packed, pickled, name = self._packed, self._pickled, self._name
        subtasks = {slot: subtask for subtask, slot in enumerate(self._slots)}

        def write_slots(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            job = load_job(packed)
            codec, scope = job.codec(), LogScope(job.plan.job_name)
            sink: ParallelSink[object] = from_bytes(pickled)
            with marked_failures(), worker_resources(), patient_collector(), in_scope(scope):
                for slot, rows in groupby(_rows(batches), key=itemgetter(0)):
                    own = _record_batches((payload for _, payload in rows), codec, name)
                    if (first := next(own, None)) is not None:
                        write_in_task(sink, SinkBatch(info, subtasks[slot], batch_id, chain([first], own)), name)
            yield pa.RecordBatch.from_arrays([pa.array([], pa.int32())], schema=_WRITTEN)

        own = frames.where(F.col("slot").isin(self._slots)).repartition(self._partitions, "slot")
        placed = own.sortWithinPartitions("slot", "seq", "channel").select("slot", "payload")
        placed.mapInArrow(write_slots, "subtask int").collect()


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _record_batches(payloads: Iterable[bytes], codec: Codec, owner: str) -> Iterator[RecordBatch[object]]:
    for payload in payloads:
        batch, _ = decode_frame(codec, payload, owner)
        if batch:
            yield batch
