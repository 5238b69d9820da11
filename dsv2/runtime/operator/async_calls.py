"""Calls an async function. Its callbacks that are not coroutines are called while no record is in flight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, ParamSpec

from dsv2.errors import ContractError
from dsv2.functions import AsyncBatchProcessFunction, AsyncOneInputStreamProcessFunction
from dsv2.graph import OperatorKind, handlers_of
from dsv2.model.async_settings import AsyncBatchSettings
from dsv2.model.error_policy import ErrorPolicy
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.gate import GateListener
from dsv2.runtime.operator.async_processor import AsyncBatchProcessor, AsyncProcessor
from dsv2.runtime.operator.attempting_calls import AttemptingCalls
from dsv2.runtime.operator.call_runner import CallRunner
from dsv2.runtime.operator.contexts import NonPartitioned
from dsv2.runtime.operator.current_call import (
    InFlightOutput,
    InFlightPartition,
    InFlightTimestamp,
    current_call,
    new_task,
)
from dsv2.runtime.operator.function_calls import CallEnvironment
from dsv2.runtime.operator.processors import Processor, RecordCallback
from dsv2.runtime.state.undo import UndoLog
from dsv2.spi import AsyncFunction
from dsv2.state import TtlTimeCharacteristic
from dsv2.watermark import Watermark, WatermarkHandlingResult
from dsv2.watermark.event_time import EVENT_TIME, PROCESSING_TIME

P = ParamSpec("P")


class AsyncCalls(AttemptingCalls):
    """Calls an async function, whether or not it has an error policy."""

    partition_kind = InFlightPartition
    timestamp_kind = InFlightTimestamp

    def __init__(self, environment: CallEnvironment, policy: ErrorPolicy | None, undo: UndoLog) -> None:
        instance = environment.instance
        self._undo = undo
        self._origin = instance.origin
        self._loop = environment.job.event_loop.get()
        self._loop.loop.set_task_factory(new_task)
        self.reacts_to_watermarks = _reacts_to_watermarks(instance.function)
        """True if the records before a watermark must be completed before later ones begin."""
        untraced = replace(environment, instance=replace(instance, origin=None))  # several records are in flight
        super().__init__(untraced, ErrorPolicy() if policy is None else policy, undo, InFlightOutput())

    @property
    def async_processor(self) -> AsyncProcessor:
        """The processor of the only input."""
        (processor,) = self.processors
        assert isinstance(processor, AsyncProcessor)
        return processor

    def gate_listener(self, task: GateListener) -> GateListener:
        return _AsyncGateListener(task, self)

    def in_place(self, call: Callable[P, None]) -> Callable[P, None]:
        def deferred(*args: P.args, **kwargs: P.kwargs) -> None:
            self.async_processor.defer(partial(call, *args, **kwargs))

        return deferred

    def watermark(self, input_index: int, watermark: Watermark) -> WatermarkHandlingResult:
        if not self.reacts_to_watermarks:
            return WatermarkHandlingResult.PEEK  # records may be in flight
        return super().watermark(input_index, watermark)

    def close(self) -> None:
        self.async_processor.cancel()
        super().close()

    def _new_processor(self, input_index: int) -> Processor:
        function = self._function
        assert isinstance(function, AsyncFunction)
        settings, select = function.async_settings, self._operator.input_keys[input_index]
        in_batches = isinstance(function, AsyncBatchProcessFunction)
        name = "process_records" if in_batches else "process_record"
        ctx = _Batch(self._non_partitioned) if in_batches else self._partitioned

        def new_callback(name: str) -> RecordCallback:
            fail = self._new_fail(name, select)
            return RecordCallback(getattr(function, name), self._collectors[0], ctx, fail)

        on_timeout = new_callback("on_timeout") if _handles_timeouts(function) else None
        time = self._loop.loop.time
        runner = CallRunner(new_callback(name), on_timeout, self._attempts, settings, self._store, self._undo, time)
        if isinstance(settings, AsyncBatchSettings) and in_batches:
            return AsyncBatchProcessor(runner, settings, self._loop, self._origin)
        return AsyncProcessor(runner, select, settings, self._loop, self._origin)

    def _apply_to_all_partitions(self, function: Callable[..., object]) -> None:
        if current_call() is not None:
            raise ContractError(
                "apply_to_all_partitions is not available while records are in flight, because it would see their "
                "unfinished changes. Call it in on_watermark or end_input."
            )
        super()._apply_to_all_partitions(function)


def _handles_timeouts(function: AsyncFunction[Any, Any]) -> bool:
    defaults = (AsyncOneInputStreamProcessFunction.on_timeout, AsyncBatchProcessFunction.on_timeout)
    return getattr(type(function), "on_timeout", defaults[0]) not in defaults


class _AsyncGateListener:
    """Passes the elements of the gate to ``operator``: watermarks in their place, after the records before them."""

    def __init__(self, operator: GateListener, calls: AsyncCalls) -> None:
        self._operator = operator
        self._processor = calls.async_processor
        self._reacts = calls.reacts_to_watermarks

    def on_records(self, input_index: int, batch: RecordBatch[Any]) -> None:
        self._operator.on_records(input_index, batch)

    def on_watermark(self, input_index: int, identifier: str, value: Any) -> None:
        action = partial(self._operator.on_watermark, input_index, identifier, value)
        if self._reacts or (identifier == EVENT_TIME and value == PROCESSING_TIME):
            self._processor.complete()
            action()
        else:
            self._processor.defer(action)

    def on_status(self, input_index: int, idle: bool) -> None:
        self._processor.complete()
        self._operator.on_status(input_index, idle)

    def on_end(self, input_index: int) -> None:
        self._processor.complete()
        self._operator.on_end(input_index)

    def on_crossing(self, input_index: int, waiting: Mapping[int, str]) -> NoReturn:
        self._operator.on_crossing(input_index, waiting)


class _Batch:
    """``BatchContext``."""

    def __init__(self, ctx: NonPartitioned) -> None:
        self.non_partitioned_context = ctx
        self.job_info = ctx.job_info
        self.task_info = ctx.task_info
        self.metric_group = ctx.metric_group
        self.output = ctx.output

    @property
    def timestamps(self) -> Sequence[int | None]:
        """The timestamps of the records in ms."""
        call = current_call()
        return () if call is None else call.timestamps


def _reacts_to_watermarks(function: Any) -> bool:
    if function.dsv2_has_event_time or not type(function).on_watermark.__module__.startswith("dsv2.functions."):
        return True
    if handlers_of(function, OperatorKind.ONE_INPUT):
        return True
    lifetimes = (state.time_to_live for state in function.uses_states())
    return any(ttl is not None and ttl.time_characteristic is TtlTimeCharacteristic.EVENT_TIME for ttl in lifetimes)
