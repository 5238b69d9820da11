"""One process operator in one subtask: its function, gates, contexts, keyed store and state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from dsv2.context import RuntimeExecutionMode
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, OperatorKind
from dsv2.runtime.codec import Codec
from dsv2.runtime.contexts import (
    NO_KEY,
    JobFacts,
    Metrics,
    NonPartitioned,
    Partitioned,
    PartitionState,
    Tally,
    TaskFacts,
    WatermarkEmitter,
)
from dsv2.runtime.failure import raise_user_failure
from dsv2.runtime.fields import FunctionFields
from dsv2.runtime.frames import END, START, STATUS, WATERMARK
from dsv2.runtime.gate import InputGate
from dsv2.runtime.keyed_store import PagedKeyedStore
from dsv2.runtime.outputs import Collect, OutputCollector, key_checked
from dsv2.runtime.record_loops import Fail, keyed_loop, keyed_step, loop, step
from dsv2.watermark import BoolWatermark, BoolWatermarkDeclaration, LongWatermark, WatermarkDeclaration
from dsv2.watermark.combiner import Combiner, new_combiner
from dsv2.watermark.handling import is_forwarded

__all__ = ("JobContext", "OperatorTask", "Output")


@dataclass(frozen=True, slots=True)
class JobContext:
    """What all subtasks of a job share."""

    job_name: str
    mode: RuntimeExecutionMode
    declarations: Mapping[str, WatermarkDeclaration]
    codec: Codec
    attempt_number: int = 0


@dataclass(frozen=True, slots=True)
class Output:
    """One output of an operator: a collector for records, and a way for control elements, to all its consumers."""

    collect: Collect
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
        self._fields = FunctionFields(function, operator, job.codec, self._metrics)
        self._store = PagedKeyedStore(job.codec, f"Keyed state of {operator}, subtask {subtask}")
        self._partition = PartitionState(operator.keyed)
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
        self.gates = [InputGate(index, count, job.declarations, self) for index, count in enumerate(channels)]

    @property
    def ended(self) -> bool:
        """Whether all inputs have ended and the function is closed."""
        return self._closed

    def collector(self) -> Collect:
        """What an operator chained upstream calls with each record."""
        process, args, fail = self._process_call(0)
        tally = self._chained_in
        select = self.operator.input_keys[0]
        if select is None:
            return step(process, args, fail, tally)
        return keyed_step(process, args, fail, tally, select, self._store, self._partition)

    def control_from_chain(self, kind: int, identifier: str, value: int | bool) -> None:
        """What an operator chained upstream calls with each control element."""
        self.gates[0].receive(0, [], [(0, kind, identifier, value)])

    def open(self) -> None:
        """Call ``open`` of the function and tell downstream that there is something here; once per subtask."""
        self._opened = True
        self._control(START, "", 0)
        self._call("open", self._non_partitioned)

    def close(self) -> None:
        """Call ``close`` of the function, at the end or after a failure; only once."""
        if self._opened and not self._closed:
            self._closed = True
            self._call("close")

    def on_records(self, input_index: int, records: list[Any]) -> None:
        """Records of one channel of an input, in order."""
        self._records_in += len(records)
        self._loops[input_index](records)

    def on_watermark(self, input_index: int, identifier: str, value: int | bool) -> None:
        """A combined watermark of an input: show it to the function, then send it on if that is agreed."""
        declaration = self._job.declarations[identifier]
        is_bool = isinstance(declaration, BoolWatermarkDeclaration)
        watermark = BoolWatermark(bool(value), identifier) if is_bool else LongWatermark(value, identifier)
        self._watermarks[identifier] = value
        result = self._call(self._callbacks[input_index].watermark, watermark, *self._collectors, self._non_partitioned)
        if not is_forwarded(result, declaration.default_handling_strategy):
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
        self._report_idle()

    def on_end(self, input_index: int) -> None:
        """An input has ended; after the last one, close and pass the end on."""
        was_idle = input_index in self._idle_inputs
        self._ended_inputs.add(input_index)
        self._idle_inputs.discard(input_index)
        self._call(self._callbacks[input_index].end, self._non_partitioned)
        if not was_idle:
            for identifier, combiner in self._across_inputs.items():
                self._forward(identifier, combiner.deactivate(input_index))
        if len(self._ended_inputs) == len(self.gates):
            self._control(END, "", 0)
            self.close()
        else:
            self._report_idle()

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
            "inputs": (sorted(self._ended_inputs), sorted(self._idle_inputs), self._idle),
            "lifecycle": (self._opened, self._closed),
            "records_in": self.records_received(),
            "counters": {name: counter.count for name, counter in self._metrics.counters.items()},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over an earlier ``snapshot``; the function is not opened again."""
        for name, count in state["counters"].items():
            self._metrics.counters[name] = Tally(name, count)
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
        collects = [
            output.collect if select is None else key_checked(output.collect, select, self._partition)
            for output, select in zip(self._outputs, operator.output_keys, strict=True)
        ]
        self._collectors = tuple(OutputCollector(collect) for collect in collects)
        self._non_partitioned = NonPartitioned(
            JobFacts(job.job_name, job.mode),
            TaskFacts(operator.name, operator.parallelism, operator.max_parallelism, self._subtask, job.attempt_number),
            self._metrics,
            WatermarkEmitter(job.declarations, self._send_watermark),
            self._apply_to_all_partitions,
        )
        self._partitioned = Partitioned(self._non_partitioned, self._partition)

    def _record_loop(self, input_index: int) -> Callable[[list[Any]], None]:
        process, args, fail = self._process_call(input_index)
        select = self.operator.input_keys[input_index]
        if select is None or self._is_broadcast(input_index):
            return loop(process, args, fail)
        return keyed_loop(process, args, fail, select, self._store, self._partition)

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
