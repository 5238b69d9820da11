"""Every call into one function: with its contexts and collectors, under the right key, at the right moment.

What a callback raises leaves here as an error that names operator, callback, key and record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, TypeVar

from dsv2.columnar import Columnar
from dsv2.errors import ContractError
from dsv2.functions import (
    CollectAll,
    ColumnarFunction,
    KeyedRunFunction,
    PaneFunction,
    ProcessFunction,
    RunFunction,
    TickingFunction,
    check_returned,
)
from dsv2.graph import KeySelector, Operator, OperatorKind
from dsv2.runtime.exchange.current_timestamp import CurrentTimestamp
from dsv2.runtime.exchange.frames import Timestamps
from dsv2.runtime.exchange.outputs import (
    Collect,
    CollectStamped,
    Output,
    OutputCollector,
    at_end_only,
    key_checked,
    key_checked_stamped,
    one_by_one,
)
from dsv2.runtime.operator.columnar_calls import ColumnarCalls
from dsv2.runtime.operator.contexts import (
    DefaultJobInfo,
    DefaultTaskInfo,
    NonPartitioned,
    Partitioned,
    WatermarkEmitter,
)
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.record_loops import (
    Fail,
    keyed_loop,
    keyed_run_loop,
    keyed_step,
    loop,
    run_loop,
    stamped_loop,
    step,
)
from dsv2.runtime.report.failure import NO_KEY, raise_user_failure
from dsv2.runtime.report.metrics import DefaultCounter, DefaultMetricGroup
from dsv2.runtime.serde.codec import References
from dsv2.runtime.state.function_states import FunctionStates
from dsv2.runtime.state.handles import Handle
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.partition import EventTimers, PartitionState, PartitionTimers, SubtaskStates
from dsv2.runtime.state.timers import TimerService
from dsv2.watermark import Watermark, WatermarkHandlingResult
from dsv2.watermark.event_time import EventTimeOfInputs

__all__ = ("FunctionCalls", "Timing")

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Timing:
    """What time it is for an operator, and what waits for it."""

    event_time: EventTimeOfInputs
    event_timers: TimerService
    processing_timers: TimerService


@dataclass(frozen=True, slots=True)
class _InputCallbacks:
    process: str
    watermark: str
    end: str


_CALLBACKS = {
    OperatorKind.ONE_INPUT: (_InputCallbacks("process_record", "on_watermark", "end_input"),),
    OperatorKind.TWO_OUTPUT: (_InputCallbacks("process_record", "on_watermark", "end_input"),),
    OperatorKind.TWO_INPUT: (
        _InputCallbacks("process_record_from_first_input", "on_watermark_from_first_input", "end_first_input"),
        _InputCallbacks("process_record_from_second_input", "on_watermark_from_second_input", "end_second_input"),
    ),
    OperatorKind.TWO_INPUT_BROADCAST: (
        _InputCallbacks(
            "process_record_from_non_broadcast_input",
            "on_watermark_from_non_broadcast_input",
            "end_non_broadcast_input",
        ),
        _InputCallbacks(
            "process_record_from_broadcast_input", "on_watermark_from_broadcast_input", "end_broadcast_input"
        ),
    ),
}


class FunctionCalls:
    """Calls ``function``, which is the one of ``operator`` in subtask ``subtask``."""

    def __init__(
        self,
        operator: Operator,
        subtask: int,
        function: ProcessFunction,
        outputs: Sequence[Output],
        job: JobContext,
        store: PagedKeyedStore,
        timing: Timing,
        *,
        send_watermark: Callable[[str, int | bool], None],
        has_ended: Callable[[], bool],
    ) -> None:
        """``has_ended``: whether all inputs have."""
        self.metrics = DefaultMetricGroup()
        self.has_event_time = function.has_event_time
        self._operator = operator
        self._subtask = subtask
        self._function = function
        self._store = store
        self._has_ended = has_ended
        self._partition = PartitionState(operator.keyed, store)
        self.states = FunctionStates(
            function,
            store,
            self._partition,
            job.codec,
            job.time,
            f"State of {operator}, defined at {operator.location}, subtask {subtask}",
        )
        self._moment = CurrentTimestamp()
        self._event_time_manager = EventTimers(self._partition, timing.event_timers, timing.event_time)
        self._outputs = outputs
        self._timing = timing
        self._failed_visit: tuple[BaseException | None, Any] = (None, NO_KEY)
        self._collectors = tuple(
            self._new_collector(output, select) for output, select in zip(outputs, operator.output_keys, strict=True)
        )
        self._non_partitioned = NonPartitioned(
            DefaultJobInfo(job.job_name, job.mode),
            DefaultTaskInfo(operator.name, operator.parallelism, operator.max_parallelism, subtask, job.attempt_number),
            self.metrics,
            WatermarkEmitter(job.declarations, send_watermark),
            SubtaskStates(self._partition),
            self._apply_to_all_partitions,
        )
        processing_time = PartitionTimers(self._partition, timing.processing_timers, job.time)
        self._partitioned = Partitioned(self._non_partitioned, self._partition, processing_time, self._moment)
        self._callbacks = _CALLBACKS[operator.kind]
        inputs = range(len(self._callbacks))
        self._columns = self._columnar_calls()
        if self._columns is None:
            self._loops = [self._record_loop(index) for index in inputs]
            self._stamped_loops = [self._stamped_loop(index) for index in inputs]
            self._run_loop = self._new_run_loop()

    @property
    def takes_columns(self) -> bool:
        """Whether the function wants many records at once."""
        return self._columns is not None

    def process_gathered(self) -> None:
        """Give such a function what operators chained upstream have handed over one by one."""
        if self._columns is not None:
            self._columns.process_gathered()

    @property
    def kept_by_name(self) -> References:
        """What a function may keep in a field although it is the runtime's: see ``FunctionFields``."""
        return {
            DefaultCounter.reference_kind: self.metrics.counter,
            EventTimers.reference_kind: lambda name: self._event_time_manager,
            Handle.reference_kind: self.states.named,
        }

    def init(self) -> None:
        """Give a function with event time its manager: before ``open``, and after each restart."""
        if self.has_event_time:
            self._notify("init_event_time_process_function", self._event_time_manager)

    def open(self) -> None:
        """Call ``open``."""
        self._notify("open", self._non_partitioned)

    def close(self) -> None:
        """Call ``close``."""
        self._notify("close")

    def process(self, input_index: int, records: Sequence[Any], timestamps: Timestamps) -> None:
        """Call the function for each of ``records``, in order."""
        if self._columns is not None:
            self._columns.process(records)
            return
        if self._run_loop is not None:
            self._run_loop(records, timestamps)
            return
        if isinstance(records, Columnar):
            records = records.rows()
        if timestamps is None:
            self._loops[input_index](records)
            return
        self._inherit(None)
        try:
            self._stamped_loops[input_index](records, timestamps)
        finally:
            self._inherit_nothing()

    def collectors(self, tally: DefaultCounter) -> tuple[Collect, CollectStamped, CollectAll]:
        """What an operator chained upstream calls with each record, without and with a timestamp, and with many.

        ``tally`` counts the records.
        """
        if self._columns is not None:
            return self._columns.collectors(tally)
        process, args, fail = self._process_call(0)
        select = self._key_selector(0)
        if select is None:
            collect = step(process, args, fail, tally)
        else:
            collect = keyed_step(process, args, fail, tally, select, self._store, self._partition)

        def collect_stamped(record: Any, timestamp: int | None) -> None:
            self._inherit(timestamp)
            try:
                collect(record)
            finally:
                self._inherit_nothing()

        def collect_all(records: Sequence[Any], timestamps: Timestamps) -> None:
            tally.count += len(records)
            self.process(0, records, timestamps)

        return collect, collect_stamped, collect_all

    def watermark(self, input_index: int, watermark: Watermark) -> WatermarkHandlingResult:
        """Show ``watermark`` of an input to the function."""
        callback = self._callbacks[input_index].watermark
        result: object = self._call(callback, watermark, *self._collectors, self._non_partitioned)
        if not isinstance(result, WatermarkHandlingResult):
            error = ContractError(
                f"{callback} returned {result!r}. Return WatermarkHandlingResult.PEEK, which lets the watermark go on "
                f"as it is declared, or POLL, which keeps it back."
            )
            raise_user_failure(self._operator, self._subtask, callback, error)
        return result

    def event_time_watermark(self, time: int) -> None:
        """Tell a function with event time how late it is."""
        self._notify("on_event_time_watermark", time, *self._collectors, self._non_partitioned)

    def end(self, input_index: int) -> None:
        """Tell the function that an input has ended."""
        outputs = self._collectors if self.takes_columns else ()
        self._notify(self._callbacks[input_index].end, *outputs, self._non_partitioned)

    def tick(self, now_ms: int) -> None:
        """Let a function act on the time that has passed, if it does."""
        if isinstance(self._function, TickingFunction):
            self.attributed("tick", self._function.tick, now_ms, self._non_partitioned.watermark_manager)

    def _next_tick(self) -> int | None:
        return self._function.next_tick() if isinstance(self._function, TickingFunction) else None

    def fire_event_timers(self, time: int) -> None:
        """Call ``on_event_timer`` for each timer up to ``time`` ms; what it collects has the timer's time."""
        self._inherit(None)
        try:
            self._end_panes(time, by_event=True)
            self._timing.event_timers.advance(time, self._fire_event_timer)
        finally:
            self._inherit_nothing()

    def fire_processing_timers(self, time: int, *, last: bool = False) -> None:
        """Call ``on_processing_timer`` for each timer up to ``time`` ms; ``last``: see ``TimerService.advance``."""
        self._end_panes(time, by_event=False)
        self._timing.processing_timers.advance(time, self._fire_processing_timer, last=last)

    def next_time_by_clock(self) -> int | None:
        """When something is due by the wall clock, in ms, or a time before it; None: nothing is."""
        timing, panes = self._timing, self._store.panes
        times = [panes.next_deadline(by_event=False), timing.processing_timers.next_time(), self._next_tick()]
        if timing.event_time.uses_processing_time:
            times += panes.next_deadline(by_event=True), timing.event_timers.next_time()
        return min((time for time in times if time is not None), default=None)

    def visit(self, key: Any, visitor: Callable[[Any], R]) -> R:
        """``visitor(ctx)`` in the partition ``key``."""
        self._partition.key = key
        try:
            return visitor(self._partitioned)
        finally:
            self._partition.key = NO_KEY

    def attributed(self, callback: str, action: Callable[..., Any], *args: Any) -> Any:
        """``action(*args)``, and what it raises laid to ``callback`` of the function."""
        try:
            return action(*args)
        except BaseException as error:
            visited, key = self._failed_visit
            key = key if visited is error else NO_KEY
            raise_user_failure(self._operator, self._subtask, callback, error, key=key)

    def _call(self, callback: str, *args: Any) -> Any:
        return self.attributed(callback, getattr(self._function, callback), *args)

    def _notify(self, callback: str, *args: Any) -> None:
        self.attributed(callback, check_returned, self._call(callback, *args))

    def _fire_event_timer(self, timestamp: int, key: Any) -> None:
        self._moment.timestamp = timestamp
        self._fire("on_event_timer", timestamp, key)

    def _fire_processing_timer(self, timestamp: int, key: Any) -> None:
        self._fire("on_processing_timer", timestamp, key)

    def _end_panes(self, time: int, *, by_event: bool) -> None:
        function, panes, partition = self._function, self._store.panes, self._partition
        if not isinstance(function, PaneFunction):
            return
        while (pane := panes.next_due(by_event)) is not None and pane.deadline <= time:
            if by_event:
                self._moment.timestamp = pane.deadline
            try:
                function.on_pane_due(pane.slot, *self._collectors, self._partitioned)
            except BaseException as error:
                raise_user_failure(self._operator, self._subtask, "on_trigger", error, key=partition.key)
            finally:
                partition.key = NO_KEY

    def _fire(self, callback: str, timestamp: int, key: Any) -> None:
        self._partition.key = key
        try:
            check_returned(getattr(self._function, callback)(timestamp, *self._collectors, self._partitioned))
        except BaseException as error:
            raise_user_failure(self._operator, self._subtask, callback, error, key=key)
        finally:
            self._partition.key = NO_KEY

    def _new_collector(self, output: Output, select: KeySelector | None) -> OutputCollector:
        collect, collect_stamped = output.collect, output.collect_stamped
        if select is not None:
            collect = key_checked(collect, select, self._partition)
            collect_stamped = key_checked_stamped(collect_stamped, select, self._partition)
        if self._function.emits_only_at_end:
            collect, collect_stamped = at_end_only(collect, collect_stamped, self._has_ended)
        collect_all = None if select is not None or self._function.emits_only_at_end else output.collect_all
        collector = OutputCollector(collect, collect_stamped, self._moment, collect_all)
        if isinstance(self._function, ColumnarFunction):
            each = one_by_one(collect, collect_stamped)
            collector.collect_batch = self._function.collect_columns(collect_all or each)
        return collector

    def _inherit(self, timestamp: int | None) -> None:
        self._moment.timestamp = timestamp
        for collector in self._collectors:
            collector.inherit_timestamps(True)

    def _inherit_nothing(self) -> None:
        self._moment.timestamp = None
        for collector in self._collectors:
            collector.inherit_timestamps(False)

    def _record_loop(self, input_index: int) -> Callable[[Sequence[Any]], None]:
        process, args, fail = self._process_call(input_index)
        select = self._key_selector(input_index)
        if select is None:
            return loop(process, args, fail)
        return keyed_loop(process, args, fail, select, self._store, self._partition)

    def _stamped_loop(self, input_index: int) -> Callable[[Sequence[Any], Sequence[int | None]], None]:
        process, args, fail = self._process_call(input_index)
        select, function = self._key_selector(input_index), self._function
        if isinstance(function, KeyedRunFunction) and select is not None:
            run = partial(function.process_keyed_run, input_index)
            return keyed_run_loop(run, process, args, fail, self._moment, select, self._store, self._partition)
        return stamped_loop(process, args, fail, self._moment, select, self._store, self._partition)

    def _columnar_calls(self) -> ColumnarCalls | None:
        function = self._function
        if not isinstance(function, ColumnarFunction):
            return None

        def process(records: Sequence[Any]) -> None:
            try:
                function.process_columns(records, self._collectors[0], self._partitioned)
            except BaseException as error:
                raise_user_failure(self._operator, self._subtask, "process_batch", error, record=records)

        return ColumnarCalls(process)

    def _new_run_loop(self) -> Callable[[Sequence[Any], Timestamps], None] | None:
        function, operator = self._function, self._operator
        plain = not operator.keyed and not any(operator.output_keys) and not function.emits_only_at_end
        if not (plain and isinstance(function, RunFunction) and function.takes_runs):
            return None
        return run_loop(function.process_run, self._outputs[0].collect_all, self._process_call(0)[2])

    def _process_call(self, input_index: int) -> tuple[Callable[..., None], tuple[Any, ...], Fail]:
        callback = self._callbacks[input_index].process
        process = getattr(self._function, callback)
        args = (self._non_partitioned,) if self._is_broadcast(input_index) else (*self._collectors, self._partitioned)

        def fail(error: BaseException, record: Any, key: Any) -> NoReturn:
            where = callback
            if key is NO_KEY and self._key_selector(input_index) is not None:
                where = "key selector"  # it failed before there was a key
            raise_user_failure(self._operator, self._subtask, where, error, record=record, key=key)

        return process, args, fail

    def _key_selector(self, input_index: int) -> KeySelector | None:
        return None if self._is_broadcast(input_index) else self._operator.input_keys[input_index]

    def _is_broadcast(self, input_index: int) -> bool:
        return self._operator.kind is OperatorKind.TWO_INPUT_BROADCAST and input_index == 1

    def _apply_to_all_partitions(self, function: Callable[..., object]) -> None:
        if not self._operator.keyed or self.takes_columns:
            check_returned(function(*self._collectors, self._partitioned))
            return
        partition = self._partition
        outer = partition.key
        try:
            for partition.key in self._store:
                check_returned(function(*self._collectors, self._partitioned))
        except BaseException as error:
            self._failed_visit = error, partition.key  # to name the key, if nobody handles the error
            raise
        finally:
            partition.key = outer
