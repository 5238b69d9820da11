"""Runs one reader for one micro-batch: reads its splits and emits statuses and watermarks."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from dsv2.base.clock import Clock
from dsv2.base.columnar import WholeNumbers
from dsv2.base.log_scope import in_scope_by_step
from dsv2.base.record_position import RecordPosition
from dsv2.graph import Operator, Plan
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.operator.contexts import WatermarkEmitter
from dsv2.runtime.operator.time_sender import TimeSender
from dsv2.runtime.report.failure import raise_user_failure
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.sources.decoding import Decoding
from dsv2.runtime.sources.offsets import (
    ACTIVE,
    IDLE,
    Positions,
    ReaderOrder,
    ReplayedValue,
    Report,
    SplitOrder,
    WatermarkOrder,
)
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.sources.split_watermarks import ReaderClock, SplitTime
from dsv2.sources import Source, SourceReader, SplitBatch
from dsv2.spi import FailedRecordError, greatest_timestamp
from dsv2.watermark import Watermark, WatermarkDeclaration
from dsv2.watermark.event_time import PROCESSING_TIME


class _ReaderContext(WatermarkEmitter):
    """``SourceReaderContext``."""

    def __init__(
        self,
        order: ReaderOrder,
        parallelism: int,
        sender: TimeSender,
        task: SourceTask,
        declarations: Mapping[str, WatermarkDeclaration],
    ) -> None:
        now_ms = order.now_ms
        super().__init__(declarations, lambda identifier, value: sender.emit(identifier, value, now_ms))
        self.subtask = order.subtask
        self.parallelism = parallelism
        self._sender = sender
        self._task = task

    def mark_idle(self) -> None:
        """Declare the reader idle."""
        self._sender.declare_status(True)

    def mark_active(self) -> None:
        """Declare the reader active."""
        self._sender.declare_status(False)

    def count(self, name: str, amount: int = 1) -> None:
        """Add to a counter."""
        self._task.count(name, amount)


class SplitReading:
    """Executes an order. It is not a part of a cycle of references, since there is one for each micro-batch.

    Args:
        source: The source.
        plan: The plan of the job.
        operator: The operator of the source.
        order: The order.
        task: Receives the records.
        new_codec: Creates the codec for the values of dead letters.
        clock: Waits before a value is decoded again. None (default): the system clock.
    """

    def __init__(
        self,
        source: Source[Any, Any, Any],
        plan: Plan,
        operator: Operator,
        order: ReaderOrder,
        task: SourceTask,
        new_codec: Callable[[], Codec],
        clock: Clock | None = None,
    ) -> None:
        self._new_codec = new_codec
        self._source = source
        self._operator = operator
        self._order = order
        self._task = task
        self._decoding = Decoding(
            operator,
            order.subtask,
            task,
            order.now_ms,
            clock=clock,
            failures_before=order.failures_before,
            to_columns=plan.processes_columns(operator),
        )
        self._sender = task.sender
        self._sender.restore(order.sender)
        self._reports = plan.readers_report(operator)
        self._declarations = plan.declarations
        self._ctx = _ReaderContext(order, operator.parallelism, self._sender, task, plan.declarations)
        self._failed_at: RecordPosition | None = None
        self._clock: ReaderClock | None = None
        if operator.watermarks is not None:
            times = {split.stop.split_id: SplitTime(split.watermark, split.idle, split.last) for split in order.splits}
            self._clock = ReaderClock(operator.watermarks, times, order.sent)

    def run(self) -> Generator[int, None, None]:
        """Execute the order, including the start and end of the source. Close it if the job ends before that.

        Yields:
            The number of records of each batch, after it has been sent.

        Raises:
            UserFunctionError: The reader failed.
        """
        return in_scope_by_step(self._task.scope, self._run())

    def _run(self) -> Generator[int, None, None]:
        if self._order.first:
            self._begin()
        if ACTIVE in self._order.signals:
            self._sender.forward_status(False)
        if self._order.replays:
            codec = self._new_codec()
            for value in self._order.replays:
                yield self._replay(value, codec)
        yield from self._do_steps()
        self._task.end_portion()
        if self._clock is not None:
            self._send_time(self._clock.finish())
        if IDLE in self._order.signals:
            self._sender.forward_status(True)
        if self._order.last:
            self._task.end()

    def report(self) -> Report | None:
        """Return the report for the driver after the micro-batch, or None if the source needs none."""
        if not self._reports:
            return None
        splits = {} if self._clock is None else self._clock.splits
        return {
            "source": self._operator.uid,
            "batch": self._order.batch,
            "subtask": self._order.subtask,
            "parallelism": self._operator.parallelism,
            "splits": {split_id: split.watermark for split_id, split in splits.items() if not split.last},
            "sent": None if self._clock is None else self._clock.sent,
            "sender": self._sender.snapshot(),
            "failures": self._decoding.failures,
            "failures_before": self._order.failures_before,
        }

    def _begin(self) -> None:
        self._task.start()
        if self._operator.watermarks is not None and not self._operator.watermarks.emits:
            self._sender.send(PROCESSING_TIME)

    def _do_steps(self) -> Generator[int, None, None]:
        reader: SourceReader[Any, Any] | None = None
        try:
            for step in self._order.steps:
                if isinstance(step, WatermarkOrder):
                    with self._calling("emit_watermark"):
                        self._ctx.emit_watermark(self._watermark(step))
                elif step.start is not None:
                    if reader is None:
                        with self._calling("create_reader"):
                            reader = self._source.create_reader(self._ctx)
                    self._begin_portion(step)
                    with self._calling("read"):
                        for batch in reader.read(step.start, step.stop):
                            yield self._send(step, batch)
        finally:
            if reader is not None:
                reader.close()

    def _replay(self, value: ReplayedValue, codec: Codec) -> int:
        raw, timestamp = codec.loads(value.payload, f"Letter {value.letter} of source {self._operator.uid!r}")
        with self._calling("decode_again"):
            again = self._source.decode_again(raw, value.split)
            stamps = None if timestamp is None else [timestamp]
            stamped = SplitBatch(
                again.values, again.decode, timestamps=stamps, raw=lambda _: raw, omits_none=again.omits_none
            )
            batch, positions = self._decoding.decode_again(stamped, value.split, value.offset)
            self._task.send(batch if self._clock is None else self._clock.stamped(batch), positions)
        return len(batch)

    def _begin_portion(self, portion: SplitOrder) -> None:
        self._decoding.begin(self._source.split_name(portion.start), partial(_start_name, self._source, portion.start))

    @contextmanager
    def _calling(self, callback: str) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            strategy = self._operator.watermarks
            if isinstance(error, FailedRecordError) and strategy is not None and strategy.extract_timestamp is not None:
                callback = "extract_timestamp"
            raise_user_failure(self._operator, self._order.subtask, callback, error, position=self._failed_at)

    def _send(self, portion: SplitOrder, batch: RecordBatch[Any]) -> int:
        if not isinstance(batch, RecordBatch):
            raise TypeError(f"read must yield a RecordBatch, got {type(batch).__name__}. Yield RecordBatch(records).")
        batch, positions = self._decoding.decode(batch)
        if not batch.is_columnar:
            batch = RecordBatch(list(batch.records), batch.timestamps)
        if batch.timestamps is not None and len(batch.timestamps) != len(batch):
            raise ValueError(
                f"A batch must have a timestamp for each record, got {len(batch)} records and "
                f"{len(batch.timestamps)} timestamps."
            )
        try:
            self._send_decoded(portion.stop.split_id, batch, positions)
        except FailedRecordError as failed:  # of the timestamp extractor
            self._failed_at = _position_of(failed.record, batch, positions)
            raise
        return len(batch)

    def _send_decoded(self, split_id: str, batch: RecordBatch[Any], positions: Positions) -> None:
        if self._clock is not None:
            sent = 0
            for piece, time in self._clock.take(split_id, batch):
                self._task.send(piece, positions if len(piece) == len(batch) else positions.after(sent))
                sent += len(piece)
                self._send_time(time)
            return
        if batch.timestamps is not None and not isinstance(batch.timestamps, WholeNumbers):
            stamped = [pair for pair in batch.pairs() if pair[1] is not None]
            if stamped:
                greatest_timestamp(*zip(*stamped, strict=True))
        self._task.send(batch, positions)

    def _watermark(self, step: WatermarkOrder) -> Watermark:
        declaration = self._declarations.get(step.identifier)
        return Watermark(step.value, step.identifier) if declaration is None else declaration.watermark_of(step.value)

    def _send_time(self, time: int | None) -> None:
        if time is not None:
            self._sender.send(time)


def _start_name(source: Source[Any, Any, Any], start: Any) -> str:
    return json.dumps(source.split_serializer.to_json(start), sort_keys=True)


def _position_of(record: Any, batch: RecordBatch[Any], positions: Positions) -> RecordPosition | None:
    index = next((index for index, other in enumerate(batch.rows()) if other is record), None)
    return None if index is None else positions.at(index)
