"""Calls one function with its contexts and collectors and sets the current key.

Exceptions of a callback are converted into errors that name the operator, callback, key and record.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec, TypeVar

from dsv2.base.columnar import ComputedKey
from dsv2.errors import ContractError, IncompatibleCheckpointError
from dsv2.graph import KeySelector, OperatorKind, handlers_of, owner_of_handlers
from dsv2.graph.per_key import key_callback
from dsv2.runtime.exchange.collector import CurrentTimestamp, OutputCollector
from dsv2.runtime.exchange.emitter import Emitter, EndGuard, KeyGuard
from dsv2.runtime.exchange.gate import GateListener
from dsv2.runtime.operator.contexts import (
    ColumnarNonPartitioned,
    ColumnarPartitioned,
    DefaultJobInfo,
    DefaultTaskInfo,
    NonPartitioned,
    OutputWatermarkEmitter,
    Partitioned,
    SendWatermark,
)
from dsv2.runtime.operator.function_instance import FunctionInstance
from dsv2.runtime.operator.function_outputs import SideOutputs, WatermarkOutputs
from dsv2.runtime.operator.grouping_processor import GroupingProcessor
from dsv2.runtime.operator.input_callbacks import callbacks_of
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.processors import (
    BatchProcessor,
    ColumnarProcessor,
    Fail,
    KeyedBatchProcessor,
    KeyedProcessor,
    PreparingProcessor,
    Process,
    Processor,
    RecordCallback,
    RowProcessor,
)
from dsv2.runtime.report.failure import NO_KEY
from dsv2.runtime.report.metrics import DefaultCounter, DefaultHistogram, DefaultMetricGroup
from dsv2.runtime.serde.codec import References
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.runtime.state.function_states import FunctionStates
from dsv2.runtime.state.handles import Handle
from dsv2.runtime.state.key_groups import not_hashable
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.partition import EventTimers, PartitionState, PartitionTimers, SubtaskStates
from dsv2.runtime.state.timers import TimerService
from dsv2.runtime.state.ttl_handles import EventClock
from dsv2.spi import (
    BatchFunction,
    ColumnarFunction,
    KeepsAggregates,
    KeyedBatchFunction,
    KeyedColumns,
    PaneFunction,
    TickingFunction,
    WrappingFunction,
    check_returned,
    comes_with,
)
from dsv2.state import StateDeclaration
from dsv2.watermark import KeyedWatermark, Watermark, WatermarkHandlingResult
from dsv2.watermark.event_time import EventTimeOfInputs

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Timing:
    """Event time and timers of an operator."""

    event_time: EventTimeOfInputs
    event_timers: TimerService
    processing_timers: TimerService


@dataclass(frozen=True, slots=True)
class CallEnvironment:
    """A function and what its subtask provides for calling it.

    Attributes:
        instance: The function and its operator.
        outputs: An emitter for each output, side outputs last.
        job: Shared by all subtasks of the job.
        store: The keyed state of the function.
        timing: Event time and timers.
        send_watermark: Called with the identifier, the value and the output of each emitted watermark.
        has_ended: Whether all inputs have ended.
        new_dict: Creates the dict that holds states of the subtask.
        current: The timestamp of the current record, if it is shared.
        columns: What a function on tables gets for its keyed state.
    """

    instance: FunctionInstance
    outputs: Sequence[Emitter]
    job: JobContext
    store: PagedKeyedStore
    timing: Timing
    send_watermark: SendWatermark
    has_ended: Callable[[], bool]
    new_dict: Callable[[], dict[Any, Any]] = dict
    current: CurrentTimestamp | None = None
    columns: ColumnsEnvironment | None = None


class FunctionCalls:
    """Calls a function. Creates its contexts, collectors and processors."""

    partition_kind: type[PartitionState] = PartitionState
    timestamp_kind: type[CurrentTimestamp] = CurrentTimestamp

    def __init__(self, environment: CallEnvironment) -> None:
        instance, job, outputs = environment.instance, environment.job, environment.outputs
        store, timing = environment.store, environment.timing
        operator, function = instance.operator, instance.function
        self.metrics = DefaultMetricGroup(function.wrapped if isinstance(function, WrappingFunction) else function)
        self.has_event_time = function.dsv2_has_event_time
        self._instance = instance
        self._traces = instance.origin is not None  # then records are processed one by one
        self._operator = operator
        self._function = function
        self._store = store
        self._timing = timing
        self._has_ended = environment.has_ended
        self._failed_visit: tuple[BaseException | None, Any] = (None, NO_KEY)
        self._partition = self.partition_kind(operator.keyed, store)
        owner = f"State of {instance.place}"
        self._current = self.timestamp_kind() if environment.current is None else environment.current
        clock = EventClock(timing.event_time, self._current)
        self.states = FunctionStates(
            function,
            store,
            self._partition,
            job.codec,
            job.time,
            clock,
            owner,
            self._fail_migration,
            environment.new_dict,
        )
        self._event_time_manager = EventTimers(self._partition, timing.event_timers, timing.event_time)
        main = len(operator.output_keys)
        self._emitters = [
            self._guarded(output, select) for output, select in zip(outputs[:main], operator.output_keys, strict=True)
        ]
        self._collectors = tuple(self._new_collector(emitter) for emitter in self._emitters)
        side_outputs = SideOutputs(
            {
                tag: OutputCollector(self._guarded(output, None), self._current)
                for tag, output in zip(operator.side_outputs, outputs[main:], strict=True)
            }
        )
        task_info = DefaultTaskInfo(
            operator.name, operator.parallelism, operator.max_parallelism, instance.subtask, job.attempt_number
        )
        self.columns: KeyedColumns | None = None
        """The keyed state of a function on tables."""
        if isinstance(function, ColumnarFunction) and environment.columns is not None:
            self.columns = function.dsv2_keyed_columns(environment.columns, self._fail_migration)
        of_job = (
            DefaultJobInfo(job.job_name, job.mode),
            task_info,
            self.metrics,
            OutputWatermarkEmitter(job.declarations, environment.send_watermark, WatermarkOutputs(operator)),
            SubtaskStates(self._partition),
            side_outputs,
            self._apply_to_all_partitions,
        )
        processing_time = PartitionTimers(self._partition, timing.processing_timers, job.time)
        of_key = (self._partition, processing_time, self._current)
        if self.columns is None:
            self._non_partitioned = NonPartitioned(*of_job)
            self._partitioned = Partitioned(self._non_partitioned, *of_key)
        else:
            self._non_partitioned = ColumnarNonPartitioned(self.columns, *of_job)
            self._partitioned = ColumnarPartitioned(self.columns, self._non_partitioned, *of_key)
        self._callbacks = [callbacks_of(operator.kind, number) for number in range(len(operator.input_keys))]
        self._key_callbacks = [key_callback(callbacks.watermark) for callbacks in self._callbacks]
        self._owner_of_handlers = owner_of_handlers(function)
        self._handlers: list[dict[str, str]] = [{} for _ in self._callbacks]  # by identifier
        for handler in handlers_of(function, operator.kind):
            self._handlers[handler.input][handler.identifier] = handler.method
        self.processors = [self._new_processor(index) for index in range(len(self._callbacks))]
        """The processor of each input."""

    @property
    def kept_by_name(self) -> References:
        """Objects of the runtime that a function may store in its fields. See ``FunctionFields``."""
        return {
            DefaultCounter.reference_kind: self.metrics.counter,
            DefaultHistogram.reference_kind: self.metrics.histogram,
            EventTimers.reference_kind: lambda name: self._event_time_manager,
            Handle.reference_kind: self.states.named,
        }

    def owned_objects(self) -> list[object]:
        """Return objects that are on the stack when the function is called, and not when others are."""
        function = self._function
        wrapped = function.wrapped if isinstance(function, WrappingFunction) else function
        return [self, function, wrapped, self._partitioned, self._non_partitioned, *self.processors]

    def init(self) -> None:
        """Pass the event time manager to a function with event time, before ``open`` and after each restart."""
        if self.has_event_time:
            self._notify("init_event_time_process_function", self._event_time_manager)

    def open(self) -> None:
        """Call ``open``."""
        self._notify("open", self._non_partitioned)

    def close(self) -> None:
        """Call ``close``."""
        self._notify("close")

    def watermark(self, input_index: int, watermark: Watermark) -> WatermarkHandlingResult:
        """Call the handler of a watermark of an input, or ``on_watermark``, and return its result."""
        callback = self._handlers[input_index].get(watermark.identifier)
        owner = self._owner_of_handlers
        if callback is None:
            callback, owner = self._callbacks[input_index].watermark, self._function
        call = getattr(owner, callback)
        result: object = self.attributed(callback, call, watermark, *self._collectors, self._non_partitioned)
        if not isinstance(result, WatermarkHandlingResult):
            error = ContractError(
                f"{callback} returned {result!r}. Return WatermarkHandlingResult.PEEK to forward the watermark as "
                f"declared, or POLL to hold it back."
            )
            self._instance.fail(callback, error)
        return result

    def gate_listener(self, task: GateListener) -> GateListener:
        """Return what receives the elements of the gates of ``task``."""
        return task

    def in_place(self, call: Callable[P, None]) -> Callable[P, None]:
        """Return a function that calls ``call`` in its place: after the records that have arrived before."""
        return call

    def handles_key_watermark(self, input_index: int, identifier: str) -> bool:
        """Return whether the function handles a per-key watermark of an input, or overrides ``on_key_watermark``."""
        if identifier in self._handlers[input_index]:
            return True
        callback = getattr(type(self._function), self._key_callbacks[input_index], None)
        return callback is not None and not callback.__module__.startswith("dsv2.functions.")

    def key_watermark(self, input_index: int, watermark: KeyedWatermark) -> None:
        """Call the handler of a per-key watermark of an input, or ``on_key_watermark``, in the partition of its key."""
        callback = self._handlers[input_index].get(watermark.identifier, self._key_callbacks[input_index])
        self._fire(callback, watermark, watermark.key)

    def event_time_watermark(self, time: int) -> None:
        """Notify a function with event time that event time has reached ``time`` ms."""
        self._notify("on_event_time_watermark", time, *self._collectors, self._non_partitioned)

    def end(self, input_index: int) -> None:
        """Notify the function that an input has ended."""
        outputs = self._collectors if isinstance(self._function, ColumnarFunction) else ()
        self._notify(self._callbacks[input_index].end, *outputs, self._non_partitioned)

    def expire(self) -> None:
        """Remove expired values."""
        self.states.expire()
        if self.columns is not None:
            self.columns.expire()

    def columns_snapshot(self) -> dict[str, Any]:
        """Return the part of the snapshot with the keyed state of a function on tables; empty if there is none."""
        found = {} if self.columns is None else self.columns.snapshot()
        return {"columns": found} if found else {}

    def restore_columns(self, state: dict[str, Any]) -> None:
        """Restore the part ``columns`` of a snapshot, after the keyed store.

        Raises:
            IncompatibleCheckpointError: The state is that of a function on single records, or the reverse.
        """
        if self.columns is not None:
            self.columns.restore(state)
        if self._has_state_of_records() if self.columns is not None else bool(state):
            was, is_now = ("single records", "tables") if self.columns is not None else ("tables", "single records")
            raise IncompatibleCheckpointError(
                f"{self._operator}, defined at {self._operator.location}: the keyed state in the checkpoint is that of "
                f"a function on {was}, and this is one on {is_now}. Take a savepoint with the program that wrote it, "
                f"and start from the savepoint, which holds both alike."
            )

    def _has_state_of_records(self) -> bool:
        return self._store.values_held > 0

    def begin_micro_batch(self) -> None:
        """Called after each snapshot."""

    def take_letters(self) -> list[dict[str, Any]]:
        """Return and remove the dead letters that nothing reads, as they are stored."""
        return []

    def tick(self, now_ms: int) -> None:
        """Call ``tick`` if the function is a ``TickingFunction``."""
        if isinstance(self._function, TickingFunction):
            self.attributed("tick", self._function.tick, now_ms, self._non_partitioned.watermark_manager)

    def _next_tick(self) -> int | None:
        return self._function.next_tick() if isinstance(self._function, TickingFunction) else None

    def fire_event_timers(self, time: int) -> None:
        """Call ``on_event_timer`` for each timer up to ``time`` ms. Emitted records inherit the timer's timestamp."""
        self._current.begin()
        try:
            self._end_panes(time, by_event=True)
            if self.columns is None:
                self._timing.event_timers.advance(time, self._fire_event_timer)
            else:
                self.columns.fire(True, time, self._fire_event_timers)
        finally:
            self._current.end()

    def fire_processing_timers(self, time: int, *, last: bool = False) -> None:
        """Call ``on_processing_timer`` for each timer up to ``time`` ms. For ``last``, see ``TimerService.advance``."""
        self._end_panes(time, by_event=False)
        if self.columns is None:
            self._timing.processing_timers.advance(time, self._fire_processing_timer, last=last)
        else:
            self.columns.fire(False, time, self._fire_processing_timers, last=last)

    def next_time_by_clock(self) -> int | None:
        """Return the earliest wall-clock deadline in ms, or a lower bound of it; None if there is none."""
        if self.columns is not None:
            return self._next_column_time(self.columns)
        timing, panes = self._timing, self._store.panes
        times = [panes.next_deadline(by_event=False), timing.processing_timers.next_time(), self._next_tick()]
        if timing.event_time.uses_processing_time:
            times += panes.next_deadline(by_event=True), timing.event_timers.next_time()
        return min((time for time in times if time is not None), default=None)

    def visit(self, key: Any, visitor: Callable[[Any], R]) -> R:
        """Return ``visitor(ctx)``, called in the partition ``key``."""
        self._partition.key = key
        try:
            return visitor(self._partitioned)
        finally:
            self._partition.key = NO_KEY

    def attributed(self, callback: str, action: Callable[..., Any], *args: Any) -> Any:
        """Return ``action(*args)``. Its exceptions are attributed to ``callback`` of the function."""
        try:
            return action(*args)
        except BaseException as error:
            visited, key = self._failed_visit
            key = key if visited is error else NO_KEY
            self._instance.fail(callback, error, key=key)

    def _call(self, callback: str, *args: Any) -> Any:
        return self.attributed(callback, getattr(self._function, callback), *args)

    def _notify(self, callback: str, *args: Any) -> None:
        self.attributed(callback, check_returned, self._call(callback, *args))

    def _fire_event_timer(self, timestamp: int, key: Any) -> None:
        self._current.timestamp = timestamp
        self._fire("on_event_timer", timestamp, key)

    def _fire_processing_timer(self, timestamp: int, key: Any) -> None:
        self._fire("on_processing_timer", timestamp, key)

    def _next_column_time(self, columns: KeyedColumns) -> int | None:
        times = [columns.next_time(False), self._next_tick()]
        if self._timing.event_time.uses_processing_time:
            times.append(columns.next_time(True))
        return min((time for time in times if time is not None), default=None)

    def _fire_event_timers(self, timers: Any) -> None:
        self._fire_timers("on_event_timers", timers)

    def _fire_processing_timers(self, timers: Any) -> None:
        self._fire_timers("on_processing_timers", timers)

    def _fire_timers(self, callback: str, timers: Any) -> None:
        self._notify(callback, timers, *self._collectors, self._partitioned)

    def _end_panes(self, time: int, *, by_event: bool) -> None:
        function, panes, partition = self._function, self._store.panes, self._partition
        if not isinstance(function, PaneFunction):
            return
        while (pane := panes.next_due(by_event)) is not None and pane.deadline <= time:
            if by_event:
                self._current.timestamp = pane.deadline
            try:
                function.on_pane_due(pane.slot, *self._collectors, self._partitioned)
            except BaseException as error:
                self._instance.fail("on_trigger", error, key=partition.key)
            finally:
                partition.key = NO_KEY

    def _fire(self, callback: str, argument: Any, key: Any) -> None:
        self._partition.key = key
        try:
            check_returned(getattr(self._function, callback)(argument, *self._collectors, self._partitioned))
        except BaseException as error:
            self._instance.fail(callback, error, key=key)
        finally:
            self._partition.key = NO_KEY

    def _guarded(self, emitter: Emitter, select: KeySelector | None) -> Emitter:
        if select is not None:
            emitter = KeyGuard(emitter, select, self._partition)
        return EndGuard(emitter, self._has_ended) if self._function.dsv2_emits_only_at_end else emitter

    def _new_collector(self, emitter: Emitter) -> OutputCollector:
        collector = OutputCollector(emitter, self._current)
        if isinstance(self._function, ColumnarFunction):
            collector.collect_batch = self._function.dsv2_collect_columns(emitter.emit_batch)
        return collector

    def _new_processor(self, input_index: int) -> Processor:
        function, select = self._function, self._key_selector(input_index)
        if isinstance(function, ColumnarFunction):
            process, fail = function.dsv2_columns_callback(input_index), self._new_fail("process_batch")
            return ColumnarProcessor(process, self._collectors[0], self._partitioned, fail)
        processor = self._new_record_processor(input_index, function, select)
        if isinstance(select, ComputedKey):
            processor = PreparingProcessor(processor, select.prepare)
        parts = function.written_by_user if isinstance(function, WrappingFunction) else (function,)
        aggregates = next((part for part in parts if isinstance(part, KeepsAggregates)), None)
        return processor if aggregates is None else PreparingProcessor(processor, aggregates.prepare_records)

    def _new_record_processor(self, input_index: int, function: object, select: KeySelector | None) -> Processor:
        name = self._callbacks[input_index].process
        callback = self._record_callback(name, input_index, select)
        if select is not None:
            keyed = (callback, self._current, select, self._store, self._partition)
            if isinstance(function, KeyedBatchFunction) and not self._traces:
                return KeyedBatchProcessor(*keyed, function, input_index)
            together = name.replace("process_record", "process_records", 1)
            if comes_with(type(function), name, together) and not self._traces:
                return GroupingProcessor(*keyed, self._record_callback(together, input_index, select))
            return KeyedProcessor(*keyed)
        (emitter, *_) = self._emitters
        takes_batches = isinstance(function, BatchFunction) and function.takes_batches
        if takes_batches and not self._operator.keyed and not emitter.checks_records and not self._traces:
            assert isinstance(function, BatchFunction)
            return BatchProcessor(callback, self._current, function, emitter.emit_batch)
        return RowProcessor(callback, self._current)

    def _record_callback(self, name: str, input_index: int, select: KeySelector | None) -> RecordCallback:
        process = self._adapted(getattr(self._function, name), input_index)
        return RecordCallback(process, self._collectors[0], self._partitioned, self._new_fail(name, select))

    def _adapted(self, process: Callable[..., object], input_index: int) -> Process:
        """Adapt ``process`` of any function kind to the arguments (record, output, ctx)."""
        if self._is_broadcast(input_index):
            non_partitioned = self._non_partitioned
            return lambda record, output, ctx: process(record, non_partitioned)
        if len(self._collectors) == 2:
            first, second = self._collectors
            return lambda record, output, ctx: process(record, first, second, ctx)
        return process

    def _fail_migration(self, state: StateDeclaration, key: Any, error: BaseException) -> NoReturn:
        self._instance.fail(f"migrate of {state}", error, key=key)

    def _new_fail(self, callback: str, select: KeySelector | None = None) -> Fail:
        def fail(error: BaseException, record: Any, key: Any) -> NoReturn:
            if select is None or key is not NO_KEY:
                self._instance.fail(callback, error, record, key)
            self._instance.fail("key selector", _error_of_key(select, record, error), record, key)

        return fail

    def _key_selector(self, input_index: int) -> KeySelector | None:
        return None if self._is_broadcast(input_index) else self._operator.input_keys[input_index]

    def _is_broadcast(self, input_index: int) -> bool:
        return self._operator.kind is OperatorKind.TWO_INPUT_BROADCAST and input_index == 1

    def _apply_to_all_partitions(self, function: Callable[..., object]) -> None:
        if not self._operator.keyed or isinstance(self._function, ColumnarFunction):
            check_returned(function(*self._collectors, self._partitioned))
            return
        partition = self._partition
        outer = partition.key
        try:
            for partition.key in self._store:
                check_returned(function(*self._collectors, self._partitioned))
        except BaseException as error:
            self._failed_visit = error, partition.key  # to name the key if user code does not handle the error
            raise
        finally:
            partition.key = outer


def _error_of_key(select: KeySelector, record: Any, error: BaseException) -> BaseException:
    """Return ``error``, which was raised before the key of ``record`` was known, or what it says of the key."""
    if isinstance(error, TypeError):
        with contextlib.suppress(Exception):
            key = select(record)
            try:
                hash(key)
            except TypeError as unhashable:
                return not_hashable(key, unhashable)
    return error
