"""Calls the callbacks of a window function for the current window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from dsv2.errors import ContractError
from dsv2.extension.window.current_window import CurrentWindow
from dsv2.extension.window.evictors import WindowEvictor
from dsv2.functions import ProcessFunction
from dsv2.model.output_tag import OutputTag
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import (
    EmitBatch,
    FailedCallbackError,
    StampedSideOutput,
    StampingCollector,
    check_returned,
    refuse_returned,
    stamping_collector,
)


class _ClockOnly:
    """A ``ProcessingTimeManager`` without timers."""

    def __init__(self, manager: Any) -> None:
        self.current_time = manager.current_time

    def register_timer(self, timestamp: int) -> NoReturn:
        """Raise ``ContractError``."""
        raise ContractError(
            "Window functions cannot register timers. Fire windows earlier with WindowStrategy.with_early_firing, or "
            "write an event-time process function."
        )

    delete_timer = register_timer


class TimerlessContext:
    """``PartitionedContext`` of a window function with one or two outputs.

    Side outputs go to ``side_output``, or by default to that of ``ctx``.
    """

    def __init__(self, ctx: Any, side_output: StampedSideOutput | None = None) -> None:
        self._ctx = ctx
        self.output = ctx.output if side_output is None else side_output.output
        self.non_partitioned_context = ctx.non_partitioned_context
        self.processing_time_manager = _ClockOnly(ctx.processing_time_manager)
        self.state_manager = ctx.state_manager
        self.job_info = ctx.job_info
        self.task_info = ctx.task_info
        self.metric_group = ctx.metric_group

    @property
    def timestamp(self) -> int | None:
        """The timestamp of the current record or timer, in ms."""
        timestamp: int | None = self._ctx.timestamp
        return timestamp


_BATCH_RECORDS = 1024


@dataclass(frozen=True, slots=True)
class Shape:
    """The base class of a kind of window functions, and the names of its record callbacks by input."""

    base: type[ProcessFunction]
    on_record: tuple[str, ...]
    on_late_record: tuple[str, ...]


class _WindowCollector:
    """Assigns the timestamp of a window to collected records."""

    __slots__ = ("_collect_stamped", "collect_and_overwrite_timestamp", "timestamp")

    def __init__(self, output: StampingCollector) -> None:
        self._collect_stamped = output.collect_stamped
        self.collect_and_overwrite_timestamp = output.collect_and_overwrite_timestamp
        self.timestamp: int | None = None

    def collect(self, record: Any) -> None:
        self._collect_stamped(record, self.timestamp)


class Callbacks:
    """Calls the callbacks of ``function``. An exception in one is raised as ``FailedCallbackError``."""

    def __init__(
        self,
        function: Any,
        shape: Shape,
        outputs: Sequence[Any],
        runtime_ctx: Any,
        window: CurrentWindow,
        late_tags: Sequence[OutputTag[Any]] = (),
    ) -> None:
        """If there are ``late_tags``, one for each input, late records go there instead of to ``function``."""
        self._window = window
        self._ctx = ctx = TimerlessContext(runtime_ctx)
        self._args = (*outputs, ctx)
        self._late_tags = late_tags
        collectors = tuple(_WindowCollector(stamping_collector(output)) for output in outputs)
        self._stamping: Sequence[_WindowCollector | StampedSideOutput] = collectors
        self._side_output = StampedSideOutput(runtime_ctx)
        self._window_ctx = TimerlessContext(runtime_ctx, self._side_output)
        if function.declare_outputs() or function.dsv2_reading_declares:
            self._stamping = (*collectors, self._side_output)
        self._window_args = (*collectors, self._window_ctx, window)
        self._record_args = (*outputs, ctx, window)
        self._shape = shape
        self._on_record = [getattr(function, name) for name in shape.on_record]
        self._on_late_record = [getattr(function, name) for name in shape.on_late_record]
        self._drops_late = [not _overrides(function, shape.base, name) for name in shape.on_late_record]
        self._on_trigger = function.on_trigger
        self._on_clear = function.on_clear
        self.only_keeps = tuple(not _overrides(function, shape.base, name) for name in shape.on_record)
        """For each input, whether ``on_record`` only puts the record into the window."""
        self.trigger_all: Callable[[dict[Any, Any], int], None] | None = None
        """Fires a window of all keys, given its contents by key and its last ms. None: each key fires separately."""
        self.clears = _overrides(function, shape.base, "on_clear")
        """True if the function overrides ``on_clear``."""

    def on_record(self, record: Any, side: int) -> None:
        """Call ``on_record`` for a record of the input ``side`` in the current window."""
        try:
            returned = self._on_record[side](record, *self._record_args)
            if returned is not None:
                refuse_returned(returned)
        except BaseException as error:
            raise FailedCallbackError(self._shape.on_record[side], self._window.described) from error

    def on_trigger(self, timestamp: int | None) -> None:
        """Fire the current window, whose output has ``timestamp``."""
        self._stamp(timestamp)
        try:
            check_returned(self._on_trigger(*self._window_args))
        except BaseException as error:
            raise FailedCallbackError("on_trigger", self._window.described) from error

    def on_clear(self, timestamp: int | None) -> None:
        """Call ``on_clear`` for the current window, whose output has ``timestamp``."""
        self._stamp(timestamp)
        try:
            check_returned(self._on_clear(*self._window_args))
        except BaseException as error:
            raise FailedCallbackError("on_clear", self._window.described) from error

    def on_late_record(self, record: Any, side: int) -> None:
        """Pass on a record of the input ``side`` that is too late for all of its windows."""
        if self._late_tags:
            self._ctx.output(self._late_tags[side], record)
            return
        if self._drops_late[side]:
            self._ctx.metric_group.counter("late_records_dropped").inc()
            return
        self._window.deactivate()
        try:
            check_returned(self._on_late_record[side](record, *self._args))
        except BaseException as error:
            raise FailedCallbackError(self._shape.on_late_record[side]) from error

    def _stamp(self, timestamp: int | None) -> None:
        for output in self._stamping:
            output.timestamp = timestamp


class EvictingCallbacks(Callbacks):
    """The callbacks of a function whose windows have an evictor."""

    def __init__(self, evictor: WindowEvictor[Any], *more: Any) -> None:
        super().__init__(*more)
        self._evictor = evictor

    def on_trigger(self, timestamp: int | None) -> None:
        """Fire the current window, and evict records before and after it."""
        self._evict("evict_before")
        super().on_trigger(timestamp)
        self._evict("evict_after")

    def _evict(self, callback: str) -> None:
        window: Any = self._window
        try:
            window.evict(getattr(self._evictor, callback))
        except BaseException as error:
            raise FailedCallbackError(f"{type(self._evictor).__name__}.{callback}", window.described) from error


class IncrementalCallbacks(Callbacks):
    """The callbacks of an ``IncrementalFunction``, which emits a result instead of ``on_trigger``."""

    def __init__(self, function: Any, shape: Shape, outputs: Sequence[Any], runtime_ctx: Any, *more: Any) -> None:
        super().__init__(function, shape, outputs, runtime_ctx, *more)
        output = stamping_collector(outputs[0])
        self._collect_stamped = output.collect_stamped
        self._partition = runtime_ctx.state_manager
        self._result_of = function.result_of
        self._emit = function.emit
        one_by_one = self._partition.attempt is not None
        if function.emit is None and output.emit_batch is not None and not one_by_one:
            self.trigger_all = partial(self._emit_all, output.emit_batch)

    def on_trigger(self, timestamp: int | None) -> None:
        """Emit the result of the current window."""
        result = self._window.content
        try:
            if self._result_of is not None:
                result = self._result_of(result)
            if self._emit is not None:
                self._side_output.timestamp = timestamp
                result = self._emit(result, self._window, self._window_ctx)
            self._collect_stamped(result, timestamp)
        except BaseException as error:
            callback = "get_result" if self._emit is None else "emit"
            raise FailedCallbackError(callback, self._window.described) from error

    def _emit_all(self, emit_batch: EmitBatch, contents: dict[Any, Any], timestamp: int) -> None:
        results = list(contents.values())
        if self._result_of is not None:
            results = self._all_results(contents, timestamp)
        for first in range(0, len(results), _BATCH_RECORDS):
            batch = results[first : first + _BATCH_RECORDS]
            emit_batch(RecordBatch(batch, [timestamp] * len(batch)))

    def _all_results(self, contents: dict[Any, Any], timestamp: int) -> list[Any]:
        result_of, partition, results = self._result_of, self._partition, list[Any]()
        try:
            for partition.key, content in contents.items():
                results.append(result_of(content))
        except BaseException as error:
            raise FailedCallbackError("get_result", f"to {timestamp + 1} ms") from error
        return results


def _overrides(function: object, base: type, name: str) -> bool:
    return getattr(type(function), name) is not getattr(base, name)
