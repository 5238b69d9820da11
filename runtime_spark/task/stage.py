"""Runs one level of a plan as a Spark stage, around the engine-neutral subtask.

Streaming: one call per slot and micro-batch. Here the subtask's state is one binary value; ``map_stage`` adds a map.
Batch: one pass over a partition sorted by slot, without stored state. Rows for slots of later levels pass through
unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.streaming.state import GroupState

from dsv2.base.clock import SystemClock
from dsv2.base.garbage_collector import patient_collector
from dsv2.checkpoint.key_samples import KeySampler
from dsv2.checkpoint.task_report import TaskReport
from dsv2.errors import JobError
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.control_log import Control
from dsv2.runtime.exchange.wire import decode_frame
from dsv2.runtime.operator.callback_limit import callback_limit
from dsv2.runtime.operator.subtask import Subtask
from dsv2.runtime.operator.subtask_restore import SubtaskRestore
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_store import PageStores, in_blob
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.row_payload import decode_rows
from runtime_spark.frames.rows import (
    COLUMNS,
    ORDER_CHANNEL,
    OUTPUT_BYTES,
    RESTORE_CHANNEL,
    FrameEncoder,
    Row,
    from_arrow,
    to_arrow,
)
from runtime_spark.frames.state_history import Journal, StateSeal
from runtime_spark.frames.state_limit import check_state_size
from runtime_spark.frames.worker import WorkerJob, batch_id, forget_modules, load_job
from runtime_spark.frames.worker_resources import worker_resources
from runtime_spark.platform.closures import from_bytes
from runtime_spark.source.source_read import ReadOrder, SourceRead

if TYPE_CHECKING:
    import pandas as pd


STATE_SCHEMA = "blob binary"

_END = (math.inf, 0)  # after all rows
_now_ms = SystemClock().now_ms

StreamingStage: TypeAlias = "Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]"
BatchStage: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class SlotState(Protocol):
    """The state that Spark stores for a slot, during one call."""

    @property
    def now_ms(self) -> int:
        """The time of the micro-batch, in ms. A repeated micro-batch has the same time."""

    def page_stores(self, codec: Codec) -> PageStores:
        """Return the stores of the subtask's pages."""

    def read(self) -> bytes | bytearray | None:
        """Return the last blob; None if there is none."""

    def write(self, blob: bytearray) -> None:
        """Store a blob."""

    def wake_at(self, deadline_ms: int | None) -> None:
        """Request a call at ``deadline_ms`` even without rows. None: no call is needed."""

    @property
    def journal(self) -> Journal | None:
        """The micro-batches that wrote the pages; None if the pages are in the blob."""


def streaming_stage(packed: bytes, level: int, *, timed: bool = False) -> StreamingStage:
    """Return the function for ``applyInPandasWithState`` at ``level`` (counted from 0).

    ``timed``: Whether the query has processing-time timeouts at this level, which the stage then sets.
    """

    def run(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        return run_slot(packed, level, int(key[0]), frames, _BlobState(state, timed))

    return run


def run_slot(
    packed: bytes, level: int, slot: int, frames: Iterator[pd.DataFrame], state: SlotState
) -> Iterator[pd.DataFrame]:
    """Process a micro-batch of one slot at ``level``. Yields the rows that the slot sends."""
    import pandas as pd  # in tasks only: each source of a job is a process that imports the program, and with it this

    job = load_job(packed)
    forget_modules()
    operator, subtask = job.layout.addresses.get(slot, (None, 0))
    if operator in job.layout.levels[level]:
        for rows in _run_subtask(job, operator, subtask, frames, state):
            yield pd.DataFrame(rows, columns=COLUMNS)
    else:
        yield from (frame[list(COLUMNS)] for frame in frames)


class _BlobState:
    """State that is one value of ``applyInPandasWithState``."""

    journal = None

    def __init__(self, state: GroupState, timed: bool) -> None:
        self.now_ms: int = state.getCurrentProcessingTimeMs()
        self._state = state
        self._timed = timed

    def page_stores(self, codec: Codec) -> PageStores:
        return in_blob

    def read(self) -> bytes | bytearray | None:
        if not self._state.exists:
            return None
        (blob,) = self._state.get
        self._state.update((b"",))  # so that Spark does not hold the blob, which may be large, until ``write``
        return blob  # type: ignore[no-any-return]

    def write(self, blob: bytearray) -> None:
        self._state.update((blob,))

    def wake_at(self, deadline_ms: int | None) -> None:
        if self._timed and deadline_ms is not None:
            self._state.setTimeoutDuration(max(1, deadline_ms - self.now_ms))


def _run_subtask(
    job: WorkerJob, head: int, index: int, frames: Iterator[pd.DataFrame], state: SlotState
) -> Iterator[list[Row]]:
    with marked_failures(), worker_resources(), patient_collector(), _limit(job):
        run = _SubtaskRun(job, head, index, state.now_ms, state.page_stores, sampled=True)
        place, key = (job.plan.operators[head].uid, index), job.signing_key
        seal = StateSeal(job.history, place, run.owner, batch_id(), state.journal, key)
        before = seal.open(state.read())
        is_new = before is None
        if before is not None:
            run.subtask.restore(before)
            del before  # it may be large
        rows = list(run.restore_from(frames))
        if is_new:
            run.open()
        rows.sort(key=lambda row: row[:2], reverse=True)
        run.subtask.begin_batch()
        while rows:
            yield from run.receive(*rows.pop())  # frees each payload when it has been processed
        yield from run.receive_rest()
        run.subtask.end_batch()
        run.subtask.flush()
        check_size = partial(check_state_size, run.owner, layout=job.layout.state)
        blob = run.subtask.snapshot_in_place(check_size)
        check_size(size := len(blob))
        state.write(seal.close(blob))  # even if unchanged, because it records the last micro-batch
        state.wake_at(run.subtask.next_deadline())
        del blob
        yield run.finish(size)


def batch_stage(packed: bytes, level: int, now_ms: int) -> BatchStage:
    """Return the function for ``mapInArrow`` at ``level`` (counted from 0), over rows sorted by slot, seq and channel.

    ``now_ms``: The processing time, which is constant during the job.
    """

    def run_partition(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job = load_job(packed)
        with marked_failures(), worker_resources(), patient_collector(), _limit(job):
            yield from _run_sorted(job, job.layout.levels[level], batches, now_ms)

    return run_partition


def _limit(job: WorkerJob) -> AbstractContextManager[None]:
    return callback_limit(job.plan.callback_timeout_ms, may_exit=True)


def _run_sorted(
    job: WorkerJob, heads: tuple[int, ...], batches: Iterable[pa.RecordBatch], now_ms: int
) -> Iterator[pa.RecordBatch]:
    run: _SubtaskRun | None = None
    current: int | None = None
    for slot, part in _parts(batches, {slot for slot, (head, _) in job.layout.addresses.items() if head in heads}):
        if slot != current:
            if run is not None:
                yield from map(to_arrow, run.end())
            current = slot
            run = None
            if slot is not None:
                run = _SubtaskRun(job, *job.layout.addresses[slot], now_ms)
                run.subtask.open()
        if run is None:
            yield part
        else:
            for _, channel, seq, payload in from_arrow([part]):
                yield from map(to_arrow, run.receive(seq, channel, payload))
    if run is not None:
        yield from map(to_arrow, run.end())


def _parts(batches: Iterable[pa.RecordBatch], own: Container[int]) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Divide sorted rows by slot. Rows for slots other than ``own``, which pass through, stay together, under None."""
    for batch in batches:
        first = 0
        for slot, rows in groupby(batch.column("slot").to_pylist(), lambda slot: slot if slot in own else None):
            number = sum(1 for _ in rows)
            yield slot, batch.slice(first, number)
            first += number


class _SubtaskRun:
    """A subtask and its encoder during one call."""

    def __init__(
        self,
        job: WorkerJob,
        head: int,
        index: int,
        now_ms: int,
        page_stores: Callable[[Codec], PageStores] = lambda codec: in_blob,
        *,
        sampled: bool = False,
    ) -> None:
        """``sampled``: Whether to report samples of keys."""
        self._job = job
        self._began = _now_ms()
        self._codec = job.codec()
        self._sampler = KeySampler(job.plan, head, self._codec) if sampled else None
        self._readings: list[SourceRead] = []
        self._restoring: SubtaskRestore | None = None
        self._encoder = FrameEncoder(job.plan, job.layout, self._codec)
        self.owner = f"{job.plan.operators[head]}, subtask {index}"
        stores = page_stores(self._codec)
        self.subtask: Subtask = job.new_subtask(head, index, self._encoder, self._codec, now_ms, stores)

    def restore_from(self, frames: Iterable[pd.DataFrame]) -> Iterator[tuple[int, int, bytes]]:
        """Load state from a savepoint as it arrives, and return the other rows: seq, channel and payload."""
        for frame in frames:
            for row in zip(frame["seq"].tolist(), frame["channel"].tolist(), frame["payload"], strict=True):
                if row[1] == RESTORE_CHANNEL:
                    self._load(row[2])
                else:
                    yield row

    def _load(self, payload: bytes) -> None:
        if self._restoring is None:
            self._restoring = self.subtask.begin_restore(self._job.succession(self._codec))
        uid, rows = decode_rows(payload, self._codec, f"State of {self.owner} in a savepoint")
        self._restoring.add(uid, rows)

    def open(self) -> None:
        """Open the subtask, or complete it if its state came from a savepoint."""
        if self._restoring is None:
            self.subtask.open()
        else:
            self._restoring.finish()

    def receive(self, seq: int, channel: int, payload: bytes) -> Iterator[list[Row]]:
        """Process a row. Rows arrive in the order of ``seq`` and ``channel``."""
        if channel == ORDER_CHANNEL:
            self._begin_reading(from_bytes(payload))
            return
        yield from self._read(before=(seq, channel))
        yield from self._deliver(channel, *decode_frame(self._codec, payload, f"A frame for {self.owner}"))

    def receive_rest(self) -> Iterator[list[Row]]:
        """Process the rest of the source reads, after the last row."""
        yield from self._read(before=_END)

    def _begin_reading(self, order: ReadOrder) -> None:
        reading = SourceRead(self._job, order, self._encoder.report)
        if self._advance(reading):
            self._readings.append(reading)

    def _read(self, before: tuple[float, int]) -> Iterator[list[Row]]:
        while self._readings:
            reading = min(self._readings, key=attrgetter("place"))
            if reading.place > before:
                return
            frame = reading.frame
            yield from self._deliver(frame.channel, frame.batch, frame.controls)
            if not self._advance(reading):
                self._readings.remove(reading)

    def _advance(self, reading: SourceRead) -> bool:
        try:
            return reading.advance()
        except BaseException:
            self.subtask.close()
            raise

    def _deliver(self, channel: int, batch: RecordBatch[Any], controls: list[Control]) -> Iterator[list[Row]]:
        if self._sampler is not None:
            self._sampler.see(channel, batch.records)
        self.subtask.receive(channel, batch, controls)
        if self._encoder.size >= OUTPUT_BYTES:
            yield self._encoder.take()

    def finish(self, state_bytes: int | None = None) -> list[Row]:
        """Return the last rows, with the subtask's progress. ``state_bytes`` is attributed to its first operator."""
        report = TaskReport.of_subtask(self.subtask)
        head, *others = report.subtasks
        head = replace(head, span=(self._began, _now_ms()), state_bytes=state_bytes)
        keys = [] if self._sampler is None else self._sampler.report()
        self._encoder.report(replace(report, subtasks=[head, *others], keys=keys))
        return self._encoder.take()

    def end(self) -> Iterator[list[Row]]:
        yield from self.receive_rest()
        self.subtask.flush()
        if not self.subtask.ended:
            raise JobError(f"{self.owner} did not receive the end of its input. Did a source end too early?")
        yield self.finish()
