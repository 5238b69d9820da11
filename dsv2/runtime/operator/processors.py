"""The record path: processors pass records to the process callback. One is chosen for each input when it is built.

A processor receives batches from a gate, or records from the operator chained upstream. Errors are handled on the
exception path, which costs nothing until an exception is raised.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from dsv2.graph import KeySelector
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.collector import CurrentTimestamp
from dsv2.runtime.exchange.emitter import Emit, EmitStamped
from dsv2.runtime.exchange.frames import MAX_FRAME_RECORDS
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.report.metrics import DefaultCounter
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.partition import PartitionState
from dsv2.spi import BatchFunction, FailedRecordError, KeyedBatchFunction, ProcessOne, refuse_returned

Process: TypeAlias = Callable[[Any, Any, Any], object]
"""Called with a record, a collector and a context."""

Fail: TypeAlias = Callable[[BaseException, Any, Any], NoReturn]
"""Called with an error, the record and the key. Raises the error that the user sees."""

_NOTHING: Any = None


class Processor(ABC):
    """Calls a function with the records of one input."""

    takes_whole_batches = False
    """True if batches should not be split."""

    @abstractmethod
    def process(self, batch: RecordBatch[Any]) -> None:
        """Process the records of one channel, in order."""

    @abstractmethod
    def new_emit(self, tally: DefaultCounter) -> Emit:
        """Create the function that the operator chained upstream calls with each record. ``tally`` counts them."""

    @abstractmethod
    def new_emit_stamped(self, emit: Emit) -> EmitStamped:
        """Create the same function for records with timestamps. ``emit`` is a result of ``new_emit``."""

    def process_chained(self, batch: RecordBatch[Any]) -> None:
        """Process a batch that the operator chained upstream emits."""
        self.process(batch)

    def flush(self) -> None:  # noqa: B027 - most buffer nothing
        """Process buffered records. Called before any later element."""

    def complete(self) -> None:
        """Complete all records. Called at the end of a micro-batch."""
        self.flush()


@dataclass(frozen=True, slots=True)
class RecordCallback:
    """The callback ``process(record, output, ctx)``. ``fail`` handles its exceptions."""

    process: Process
    output: Any
    ctx: Any
    fail: Fail


class RowProcessor(Processor):
    """Processes record by record, without keys."""

    def __init__(self, callback: RecordCallback, current: CurrentTimestamp) -> None:
        self._callback = callback
        self._current = current

    def process(self, batch: RecordBatch[Any]) -> None:
        if batch.timestamps is not None:
            self._process_stamped(batch)
            return
        process, output, ctx = self._callback.process, self._callback.output, self._callback.ctx
        record = _NOTHING
        try:
            for record in batch.rows():
                returned = process(record, output, ctx)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            self._callback.fail(error, record, NO_KEY)

    def _process_stamped(self, batch: RecordBatch[Any]) -> None:
        process, output, ctx = self._callback.process, self._callback.output, self._callback.ctx
        current = self._current
        record = _NOTHING
        current.begin()
        try:
            for record, current.timestamp in batch.pairs():
                returned = process(record, output, ctx)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            self._callback.fail(error, record, NO_KEY)
        finally:
            current.end()

    def new_emit(self, tally: DefaultCounter) -> Emit:
        process, output, ctx, fail = (
            self._callback.process,
            self._callback.output,
            self._callback.ctx,
            self._callback.fail,
        )

        def emit(record: Any) -> None:
            tally.count += 1
            try:
                returned = process(record, output, ctx)
                if returned is not None:
                    refuse_returned(returned)
            except BaseException as error:
                fail(error, record, NO_KEY)

        return emit

    def new_emit_stamped(self, emit: Emit) -> EmitStamped:
        current = self._current

        def emit_stamped(record: Any, timestamp: int | None) -> None:
            current.begin(timestamp)
            try:
                emit(record)
            finally:
                current.end()

        return emit_stamped


class KeyedProcessor(RowProcessor):
    """Processes record by record, and sets the current key for each."""

    def __init__(
        self,
        callback: RecordCallback,
        current: CurrentTimestamp,
        select: KeySelector,
        store: PagedKeyedStore,
        partition: PartitionState,
    ) -> None:
        super().__init__(callback, current)
        self._select = select
        self._store = store
        self._partition = partition

    def process(self, batch: RecordBatch[Any]) -> None:
        if batch.timestamps is not None:
            self._process_stamped(batch)
            return
        process, output, ctx = self._callback.process, self._callback.output, self._callback.ctx
        select, touched, touch, partition = self._select, self._store.touched, self._store.touch, self._partition
        record = key = NO_KEY
        try:
            for record in batch.rows():
                key = NO_KEY
                selected = select(record)
                if selected not in touched:
                    touch(selected)
                partition.key = key = selected
                returned = process(record, output, ctx)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            self._callback.fail(error, record, key)
        finally:
            partition.key = NO_KEY

    def _process_stamped(self, batch: RecordBatch[Any]) -> None:
        process, output, ctx = self._callback.process, self._callback.output, self._callback.ctx
        select, touched, touch, partition = self._select, self._store.touched, self._store.touch, self._partition
        current = self._current
        record = key = NO_KEY
        current.begin()
        try:
            for record, current.timestamp in batch.pairs():
                key = NO_KEY
                selected = select(record)
                if selected not in touched:
                    touch(selected)
                partition.key = key = selected
                returned = process(record, output, ctx)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            self._callback.fail(error, record, key)
        finally:
            partition.key = NO_KEY
            current.end()

    def new_emit(self, tally: DefaultCounter) -> Emit:
        process, output, ctx, fail = (
            self._callback.process,
            self._callback.output,
            self._callback.ctx,
            self._callback.fail,
        )
        select, touched, touch, partition = self._select, self._store.touched, self._store.touch, self._partition

        def emit(record: Any) -> None:
            tally.count += 1
            key = NO_KEY
            try:
                selected = select(record)
                if selected not in touched:
                    touch(selected)
                partition.key = key = selected
                returned = process(record, output, ctx)
                if returned is not None:
                    refuse_returned(returned)
            except BaseException as error:
                fail(error, record, key)
            finally:
                partition.key = NO_KEY

        return emit


class BatchProcessor(RowProcessor):
    """Processes whole batches, for a ``BatchFunction``."""

    def __init__(
        self,
        callback: RecordCallback,
        current: CurrentTimestamp,
        function: BatchFunction,
        emit_batch: Callable[[RecordBatch[Any]], None],
    ) -> None:
        super().__init__(callback, current)
        self._process_batch = function.process_record_batch
        self._emit_batch = emit_batch

    def process(self, batch: RecordBatch[Any]) -> None:
        try:
            self._process_batch(batch, self._emit_batch)
        except FailedRecordError as failed:
            self._callback.fail(failed.__cause__ or failed, failed.record, NO_KEY)


class KeyedBatchProcessor(KeyedProcessor):
    """Processes whole batches if records have timestamps, for a ``KeyedBatchFunction``."""

    def __init__(
        self,
        callback: RecordCallback,
        current: CurrentTimestamp,
        select: KeySelector,
        store: PagedKeyedStore,
        partition: PartitionState,
        function: KeyedBatchFunction,
        input_index: int,
    ) -> None:
        super().__init__(callback, current, select, store, partition)
        self._process_keyed_batch = function.process_keyed_batch
        self._input_index = input_index
        self._process_one = self._new_process_one()

    def _process_stamped(self, batch: RecordBatch[Any]) -> None:
        self._current.begin()
        try:
            self._process_keyed_batch(self._input_index, batch, self._select, self._process_one)
        except FailedRecordError as failed:
            self._callback.fail(failed.__cause__ or failed, failed.record, self._key_of(failed.record))
        finally:
            self._partition.key = NO_KEY
            self._current.end()

    def _new_process_one(self) -> ProcessOne:
        process, output, ctx = self._callback.process, self._callback.output, self._callback.ctx
        select, touched, touch, partition = self._select, self._store.touched, self._store.touch, self._partition
        current = self._current

        def process_one(record: Any, timestamp: int | None) -> None:
            try:
                key = select(record)
                if key not in touched:
                    touch(key)
                partition.key = key
                current.timestamp = timestamp
                process(record, output, ctx)
            except BaseException as error:
                raise FailedRecordError(record) from error

        return process_one

    def _key_of(self, record: Any) -> Any:
        try:
            key = self._select(record)
            hash(key)
            return NO_KEY if key is None else key
        except BaseException:
            return NO_KEY


class PreparingProcessor(Processor):
    """Shows the records of a batch to ``prepare`` before another processor processes them one by one."""

    def __init__(self, processor: Processor, prepare: Callable[[Sequence[Any]], None]) -> None:
        self._processor = processor
        self._prepare = prepare
        self.takes_whole_batches = processor.takes_whole_batches

    def process(self, batch: RecordBatch[Any]) -> None:
        self._prepare(batch.records)
        try:
            self._processor.process(batch)
        finally:
            self._prepare(())

    def new_emit(self, tally: DefaultCounter) -> Emit:
        return self._processor.new_emit(tally)

    def new_emit_stamped(self, emit: Emit) -> EmitStamped:
        return self._processor.new_emit_stamped(emit)


class ColumnarProcessor(Processor):
    """Processes whole batches, for a ``ColumnarFunction``. Single records are buffered into batches."""

    takes_whole_batches = True

    def __init__(
        self, process_columns: Callable[[RecordBatch[Any], Any, Any], None], output: Any, ctx: Any, fail: Fail
    ) -> None:
        self._process_columns = process_columns
        self._output = output
        self._ctx = ctx
        self._fail = fail
        self._buffer: list[Any] = []
        self._timestamps: list[int | None] = []
        self._tally = DefaultCounter()

    def process(self, batch: RecordBatch[Any]) -> None:
        self.flush()
        self._call(batch)

    def flush(self) -> None:
        if self._buffer:
            records, self._buffer[:] = self._buffer[:], []
            timestamps, self._timestamps[:] = self._timestamps[:], []
            have_none = timestamps.count(None) == len(timestamps)
            self._call(RecordBatch(records, None if have_none else timestamps))

    def new_emit(self, tally: DefaultCounter) -> Emit:
        self._tally = tally
        emit_stamped = self._emit_stamped
        return lambda record: emit_stamped(record, None)

    def new_emit_stamped(self, emit: Emit) -> EmitStamped:
        return self._emit_stamped

    def process_chained(self, batch: RecordBatch[Any]) -> None:
        if batch.is_columnar:
            self.process(batch)
            return
        self._buffer.extend(batch.records)
        self._timestamps.extend([None] * len(batch) if batch.timestamps is None else batch.timestamps)
        if len(self._buffer) >= MAX_FRAME_RECORDS:
            self.flush()

    def _emit_stamped(self, record: Any, timestamp: int | None) -> None:
        self._tally.count += 1
        self._buffer.append(record)
        self._timestamps.append(timestamp)
        if len(self._buffer) >= MAX_FRAME_RECORDS:
            self.flush()

    def _call(self, batch: RecordBatch[Any]) -> None:
        try:
            self._process_columns(batch, self._output, self._ctx)
        except BaseException as error:
            self._fail(error, batch.records, NO_KEY)
