"""One process operator in one subtask: its function, gates, contexts, keyed store and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from dsv2.context import RuntimeExecutionMode
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.functions import CollectAll, ProcessFunction, RunFunction, TickingFunction
from dsv2.graph import KeySelector, Operator, OperatorKind
from dsv2.runtime.codec import Codec
from dsv2.runtime.contexts import (
    NO_KEY,
    EventTimers,
    JobFacts,
    Metrics,
    Moment,
    NonPartitioned,
    Partitioned,
    PartitionState,
    PartitionTimers,
    Tally,
    TaskFacts,
    WatermarkEmitter,
    counter_named,
    event_time_manager,
)
from dsv2.runtime.failure import raise_user_failure
from dsv2.runtime.fields import FunctionFields
from dsv2.runtime.frames import END, START, STATUS, WATERMARK, Timestamps
from dsv2.runtime.gate import InputGate
from dsv2.runtime.keyed_store import Domain, PagedKeyedStore
from dsv2.runtime.outputs import (
    Collect,
    CollectStamped,
    OutputCollector,
    at_end_only,
    key_checked,
    key_checked_stamped,
)
from dsv2.runtime.record_loops import Fail, keyed_loop, keyed_step, loop, run_loop, stamped_loop, step
from dsv2.runtime.timers import BatchTime, TimerService
from dsv2.watermark import (
    BoolWatermark,
    BoolWatermarkDeclaration,
    LongWatermark,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingStrategy,
)
from dsv2.watermark.combiner import Combiner, new_combiner
from dsv2.watermark.event_time import EVENT_TIME, IDLE_STATUS, LONG_MAX, EventTimeOfInputs
from dsv2.watermark.handling import is_forwarded

__all__ = ("JobContext", "OperatorTask", "Output")


@dataclass(frozen=True, slots=True)
class JobContext:
    """What all subtasks of a job share."""

    job_name: str
    mode: RuntimeExecutionMode
    declarations: Mapping[str, WatermarkDeclaration]
    codec: Codec
    time: BatchTime
    attempt_number: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """One output of an operator: a collector for records, and a way for control elements, to all its consumers."""

    collect: Collect
    collect_stamped: CollectStamped
    collect_all: CollectAll
    control: Callable[[int, str, int | bool], None]
    records_sent: Callable[[], int]


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


class OperatorTask:
    """Runs one function. Driven through its gates (by frames, or by the operator it is chained to)."""

    def __init__(
        self,
        operator: Operator,
        subtask: int,
        function: ProcessFunction,
        channels: Sequence[int],
        outputs: Sequence[Output],
        job: JobContext,
    ) -> None:
        self.operator = operator
        self._subtask = subtask
        self._function = function
        self._job = job
        self._outputs = outputs
        self._metrics = Metrics()
        owner = f"Keyed state of {operator}, subtask {subtask}"
        self._store = PagedKeyedStore(job.codec, owner, function.remember_keys)
        self._partition = PartitionState(operator.keyed, self._store)
        self._moment = Moment()
        self._event_time = EventTimeOfInputs(len(channels))
        self._event_timers = TimerService(Domain.EVENT_TIME, self._store)
        self._processing_timers = TimerService(Domain.PROCESSING_TIME, self._store)
        self._event_time_manager = EventTimers(self._partition, self._event_timers, self._event_time)
        self._has_event_time = isinstance(function, EventTimeProcessFunction)
        named: dict[Callable[..., Any], Callable[..., Any]] = {
            counter_named: self._metrics.counter,
            event_time_manager: lambda: self._event_time_manager,
        }
        self._fields = FunctionFields(function, operator, job.codec, named)
        self._failed_visit: tuple[BaseException | None, Any] = (None, NO_KEY)
        self._watermarks: dict[str, int | bool] = {}
        self._across_inputs: dict[str, Combiner] = {}
        self._ended_inputs: set[int] = set()
        self._idle_inputs: set[int] = set()
        self._idle = False
        self._opened = False
        self._closed = False
        self._records_in = 0
        self._chained_in = Tally()
        self._build_contexts()
        self._callbacks = _CALLBACKS[operator.kind]
        self._loops = [self._record_loop(index) for index in range(len(self._callbacks))]
        self._run_loop = self._new_run_loop()
        self._stamped_loops = [self._stamped_loop(index) for index in range(len(self._callbacks))]
        self.gates = [InputGate(index, count, job.declarations, self) for index, count in enumerate(channels)]

    @property
    def ended(self) -> bool:
        """Whether all inputs have ended and the function is closed."""
        return self._closed

    def collectors(self) -> tuple[Collect, CollectStamped, CollectAll]:
        """What an operator chained upstream calls with each record, without and with a timestamp, and with many."""
        process, args, fail = self._process_call(0)
        tally = self._chained_in
        select = self.operator.input_keys[0]
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

        def collect_all(records: list[Any], timestamps: Timestamps) -> None:
            self.on_records(0, records, timestamps)

        return collect, collect_stamped, collect_all

    def control_from_chain(self, kind: int, identifier: str, value: int | bool) -> None:
        """What an operator chained upstream calls with each control element."""
        self.gates[0].receive(0, [], [(0, kind, identifier, value)])

    def open(self) -> None:
        """Call ``open`` of the function and tell downstream that there is something here; once per subtask."""
        self._opened = True
        self._control(START, "", 0)
        self._init_event_time()
        self._call("open", self._non_partitioned)

    def close(self) -> None:
        """Call ``close`` of the function, at the end or after a failure; only once."""
        if self._opened and not self._closed:
            self._closed = True
            self._call("close")

    def begin_batch(self) -> None:
        """Fire the processing-time timers that are due."""
        if not self._closed:
            self._processing_timers.advance(self._job.time.now_ms, self._fire("on_processing_timer"))

    def end_batch(self) -> None:
        """Fire those that were registered meanwhile, and let the function act on the time that has passed."""
        self.begin_batch()
        if not self._closed and isinstance(self._function, TickingFunction):
            self._attributed(
                "tick", self._function.tick, self._job.time.now_ms, self._non_partitioned.watermark_manager
            )

    def next_deadline(self) -> int | None:
        """When ``begin_batch`` should be called even if nothing comes, in ms; None: no need."""
        if self._closed:
            return None
        tick = self._function.next_tick() if isinstance(self._function, TickingFunction) else None
        return min((time for time in (tick, self._processing_timers.next_time()) if time is not None), default=None)

    def on_records(self, input_index: int, records: list[Any], timestamps: Timestamps) -> None:
        """Records of one channel of an input, in order."""
        self._records_in += len(records)
        if self._run_loop is not None:
            self._run_loop(records, timestamps)
            return
        if timestamps is None:
            self._loops[input_index](records)
            return
        self._inherit(None)
        try:
            self._stamped_loops[input_index](records, timestamps)
        finally:
            self._inherit_nothing()

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        """A combined watermark of an input: show it to the function, then send it on if that is agreed."""
        self._watermarks[identifier] = value
        if identifier == EVENT_TIME:
            self._on_event_time(input_index, value)
            return
        declaration = self._job.declarations[identifier]
        is_bool = isinstance(declaration, BoolWatermarkDeclaration)
        watermark = BoolWatermark(bool(value), identifier) if is_bool else LongWatermark(value, identifier)
        if not self._agrees(input_index, watermark, declaration.default_handling_strategy):
            return
        if len(self.gates) > 1 and declaration.combination_policy.combine_across_inputs:
            self._forward(identifier, self._across(declaration).update(input_index, value))
        else:
            self._control(WATERMARK, identifier, value)

    def on_status(self, input_index: int, idle: bool) -> None:
        """An input went idle or active again; the operator is idle when all of its live inputs are."""
        (self._idle_inputs.add if idle else self._idle_inputs.discard)(input_index)
        for identifier, combiner in self._across_inputs.items():
            change = combiner.deactivate if idle else combiner.activate
            self._forward(identifier, change(input_index))
        self._move_event_time(self._event_time.set_idle(input_index, idle))
        if IDLE_STATUS in self._job.declarations and not self._has_event_time:
            self._agrees(input_index, BoolWatermark(idle, IDLE_STATUS), WatermarkHandlingStrategy.FORWARD)
        self._report_idle()

    def on_end(self, input_index: int) -> None:
        """An input has ended; after the last one, close and pass the end on."""
        was_idle = input_index in self._idle_inputs
        self._ended_inputs.add(input_index)
        self._idle_inputs.discard(input_index)
        self._end_time(input_index)
        self._call(self._callbacks[input_index].end, self._non_partitioned)
        if not was_idle:
            for identifier, combiner in self._across_inputs.items():
                self._forward(identifier, combiner.deactivate(input_index))
        if self._all_inputs_ended():
            self._control(END, "", 0)
            self.close()
        else:
            self._report_idle()

    def _on_event_time(self, input_index: int, time: int) -> None:
        if self._has_event_time or self._agrees(
            input_index, LongWatermark(time, EVENT_TIME), WatermarkHandlingStrategy.FORWARD
        ):
            self._move_event_time(self._event_time.update(input_index, time))

    def _move_event_time(self, time: int | None) -> None:
        if time is None:
            return
        if self._has_event_time:
            self._event_timers.advance(time, self._fire("on_event_timer", stamped=True))
            self._call("on_event_time_watermark", time, *self._collectors, self._non_partitioned)
        if time < LONG_MAX:  # the end of input says the same
            self._control(WATERMARK, EVENT_TIME, time)

    def _end_time(self, input_index: int) -> None:
        if EVENT_TIME in self._job.declarations and not self._has_event_time:
            self._on_event_time(input_index, LONG_MAX)
        else:
            self._move_event_time(self._event_time.end(input_index))
        if self._all_inputs_ended():
            self._processing_timers.advance(LONG_MAX, self._fire("on_processing_timer"), last=True)

    def records_received(self) -> int:
        """Number of records of all inputs so far."""
        return self._records_in + self._chained_in.count

    def progress(self) -> dict[str, Any]:
        """Counts, watermarks and metrics as plain values."""
        return {
            "uid": self.operator.uid,
            "subtask": self._subtask,
            "records_in": self.records_received(),
            "records_out": sum(output.records_sent() for output in self._outputs),
            "watermarks": dict(self._watermarks),
            "counters": {name: counter.count for name, counter in self._metrics.counters.items()},
            "gauges": {name: self._attributed(f"gauge {name!r}", read) for name, read in self._metrics.gauges.items()},
            "records_held": sum(gate.held_records for gate in self.gates),
            "ended": self._closed,
        }

    def snapshot(self) -> dict[str, Any]:
        """Everything that must survive, as plain values and bytes."""
        return {
            "fields": self._attributed("__getstate__", self._fields.snapshot),
            "store": self._store.snapshot(),
            "gates": [gate.snapshot() for gate in self.gates],
            "watermarks": self._watermarks,
            "across_inputs": {identifier: c.snapshot() for identifier, c in self._across_inputs.items()},
            "event_time": self._event_time.snapshot(),
            "inputs": (sorted(self._ended_inputs), sorted(self._idle_inputs), self._idle),
            "lifecycle": (self._opened, self._closed),
            "records_in": self.records_received(),
            "counters": {name: counter.count for name, counter in self._metrics.counters.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over an earlier ``snapshot``; the function is not opened again."""
        for name, count in state["counters"].items():
            self._metrics.counters[name] = Tally(name, count)
        self._event_time.restore(state["event_time"])
        self._init_event_time()
        self._attributed("__setstate__", self._fields.restore, state["fields"])
        self._store.restore(state["store"])
        for gate, gate_state in zip(self.gates, state["gates"], strict=True):
            gate.restore(gate_state)
        self._watermarks = state["watermarks"]
        for identifier, combiner_state in state["across_inputs"].items():
            self._across(self._job.declarations[identifier]).restore(combiner_state)
        ended, idle, self._idle = state["inputs"]
        self._ended_inputs, self._idle_inputs = set(ended), set(idle)
        self._opened, self._closed = state["lifecycle"]
        self._records_in = state["records_in"]

    def _build_contexts(self) -> None:
        operator, job = self.operator, self._job
        self._collectors = tuple(
            self._new_collector(output, select)
            for output, select in zip(self._outputs, operator.output_keys, strict=True)
        )
        self._non_partitioned = NonPartitioned(
            JobFacts(job.job_name, job.mode),
            TaskFacts(operator.name, operator.parallelism, operator.max_parallelism, self._subtask, job.attempt_number),
            self._metrics,
            WatermarkEmitter(job.declarations, self._send_watermark),
            self._apply_to_all_partitions,
        )
        processing_time = PartitionTimers(self._partition, self._processing_timers, job.time)
        self._partitioned = Partitioned(self._non_partitioned, self._partition, processing_time, self._moment)

    def _new_collector(self, output: Output, select: KeySelector | None) -> OutputCollector:
        collect, collect_stamped = output.collect, output.collect_stamped
        if select is not None:
            collect = key_checked(collect, select, self._partition)
            collect_stamped = key_checked_stamped(collect_stamped, select, self._partition)
        if self._function.emits_only_at_end:
            collect, collect_stamped = at_end_only(collect, collect_stamped, self._all_inputs_ended)
        return OutputCollector(collect, collect_stamped, self._moment)

    def _all_inputs_ended(self) -> bool:
        return len(self._ended_inputs) == len(self.gates)

    def _init_event_time(self) -> None:
        if isinstance(self._function, EventTimeProcessFunction):
            self._call("init_event_time_process_function", self._event_time_manager)

    def _inherit(self, timestamp: int | None) -> None:
        self._moment.timestamp = timestamp
        for collector in self._collectors:
            collector.inherit_timestamps(True)

    def _inherit_nothing(self) -> None:
        self._moment.timestamp = None
        for collector in self._collectors:
            collector.inherit_timestamps(False)

    def _fire(self, callback: str, *, stamped: bool = False) -> Callable[[int, Any], None]:
        call, args = getattr(self._function, callback), (*self._collectors, self._partitioned)

        def fire(timestamp: int, key: Any) -> None:
            self._partition.key = key
            if stamped:
                self._inherit(timestamp)
            try:
                call(timestamp, *args)
            except BaseException as error:
                raise_user_failure(self.operator, self._subtask, callback, error, key=key)
            finally:
                self._partition.key = NO_KEY
                self._inherit_nothing()

        return fire

    def _record_loop(self, input_index: int) -> Callable[[list[Any]], None]:
        process, args, fail = self._process_call(input_index)
        select = self.operator.input_keys[input_index]
        if select is None or self._is_broadcast(input_index):
            return loop(process, args, fail)
        return keyed_loop(process, args, fail, select, self._store, self._partition)

    def _new_run_loop(self) -> Callable[[list[Any], Timestamps], None] | None:
        function, operator = self._function, self.operator
        plain = not operator.keyed and not any(operator.output_keys) and not function.emits_only_at_end
        if not (plain and isinstance(function, RunFunction) and function.takes_runs):
            return None
        return run_loop(function.process_run, self._outputs[0].collect_all, self._process_call(0)[2])

    def _stamped_loop(self, input_index: int) -> Callable[[list[Any], list[int | None]], None]:
        process, args, fail = self._process_call(input_index)
        select = None if self._is_broadcast(input_index) else self.operator.input_keys[input_index]
        return stamped_loop(process, args, fail, self._moment, select, self._store, self._partition)

    def _process_call(self, input_index: int) -> tuple[Callable[..., None], tuple[Any, ...], Fail]:
        callback = self._callbacks[input_index].process
        process = getattr(self._function, callback)
        args = (self._non_partitioned,) if self._is_broadcast(input_index) else (*self._collectors, self._partitioned)

        def fail(error: BaseException, record: Any, key: Any) -> NoReturn:
            where = callback
            if key is NO_KEY and self.operator.input_keys[input_index] is not None:
                where = "key selector"  # it failed before there was a key
            raise_user_failure(self.operator, self._subtask, where, error, record=record, key=key)

        return process, args, fail

    def _is_broadcast(self, input_index: int) -> bool:
        return self.operator.kind is OperatorKind.TWO_INPUT_BROADCAST and input_index == 1

    def _agrees(self, input_index: int, watermark: Watermark, strategy: WatermarkHandlingStrategy) -> bool:
        callback = self._callbacks[input_index].watermark
        return is_forwarded(self._call(callback, watermark, *self._collectors, self._non_partitioned), strategy)

    def _call(self, callback: str, *args: Any) -> Any:
        return self._attributed(callback, getattr(self._function, callback), *args)

    def _attributed(self, callback: str, action: Callable[..., Any], *args: Any) -> Any:
        try:
            return action(*args)
        except BaseException as error:
            visited, key = self._failed_visit
            raise_user_failure(self.operator, self._subtask, callback, error, key=key if visited is error else NO_KEY)

    def _apply_to_all_partitions(self, function: Callable[..., None]) -> None:
        if not self.operator.keyed:
            function(*self._collectors, self._partitioned)
            return
        partition = self._partition
        outer = partition.key
        try:
            for partition.key in self._store:
                function(*self._collectors, self._partitioned)
        except BaseException as error:
            self._failed_visit = error, partition.key  # to name the key, if nobody handles the error
            raise
        finally:
            partition.key = outer

    def _send_watermark(self, identifier: str, value: int | bool) -> None:
        if identifier == IDLE_STATUS:
            self._control(STATUS, "", value)
        else:
            self._control(WATERMARK, identifier, value)

    def _control(self, kind: int, identifier: str, value: int | bool) -> None:
        for output in self._outputs:
            output.control(kind, identifier, value)

    def _forward(self, identifier: str, combined: int | bool | None) -> None:
        if combined is not None:
            self._control(WATERMARK, identifier, combined)

    def _across(self, declaration: WatermarkDeclaration) -> Combiner:
        combiner = self._across_inputs.get(declaration.identifier)
        if combiner is None:
            inactive = self._ended_inputs | self._idle_inputs
            combiner = new_combiner(declaration, len(self.gates), inactive)
            self._across_inputs[declaration.identifier] = combiner
        return combiner

    def _report_idle(self) -> None:
        live = len(self.gates) - len(self._ended_inputs)
        idle = live > 0 and len(self._idle_inputs) == live
        if idle != self._idle:
            self._idle = idle
            self._control(STATUS, "", idle)
