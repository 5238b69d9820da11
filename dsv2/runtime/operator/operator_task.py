"""Runs one process operator in one subtask: watermarks, time, the end of inputs, and snapshots.

``FunctionCalls`` calls the function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from dsv2.errors import JobError
from dsv2.model.record_batch import NO_RECORDS, RecordBatch
from dsv2.runtime.exchange.barrier_rounds import BarrierRounds
from dsv2.runtime.exchange.control_log import END, START
from dsv2.runtime.exchange.emitter import Emitter
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.exchange.position_tracing import suspended
from dsv2.runtime.operator.chain import ChainedEmitter
from dsv2.runtime.operator.function_instance import FunctionInstance
from dsv2.runtime.operator.input_activity import InputActivity
from dsv2.runtime.operator.input_watermarks import InputWatermarks
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.operator_time import OperatorTime
from dsv2.runtime.operator.output_controls import OutputControls
from dsv2.runtime.operator.timed_calls import TimedCalls
from dsv2.runtime.operator.waiting_input import WaitingInput
from dsv2.runtime.operator.watermark_expiry import WatermarkExpiry
from dsv2.runtime.report.metrics import DefaultCounter
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.runtime.state.fields import FunctionFields
from dsv2.runtime.state.keyed_store import PagedKeyedStore
from dsv2.runtime.state.row_loader import RowLoader
from dsv2.watermark.event_time import EVENT_TIME, PROCESSING_TIME, USE_PROCESSING_TIME
from dsv2.watermark.value_text import shown_value

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class TaskInputs:
    """The inputs of an operator in one subtask.

    Attributes:
        gates: The gate of each input.
        activity: Which inputs are idle or have ended.
        combined: The generalized watermarks of the inputs.
        rounds: The barriers.
        expiry: The values of watermarks that expire.
        waiting: The first input if it waits for the broadcast side.
    """

    gates: Sequence[InputGate]
    activity: InputActivity
    combined: InputWatermarks
    rounds: BarrierRounds
    expiry: WatermarkExpiry
    waiting: WaitingInput | None


class OperatorTask:
    """Runs one function. Its gates receive frames or the elements of the operator chained upstream.

    Args:
        instance: The function and its operator.
        job: Shared by all subtasks of the job.
        store: The keyed state.
        calls: The calls of the function.
        inputs: The inputs.
        time: Event time.
        controls: The control elements that the operator sends.
    """

    def __init__(
        self,
        instance: FunctionInstance,
        job: JobContext,
        store: PagedKeyedStore,
        calls: TimedCalls,
        inputs: TaskInputs,
        time: OperatorTime,
        controls: OutputControls,
    ) -> None:
        self.operator = instance.operator
        self.gates = inputs.gates
        self._instance = instance
        self._job = job
        self._store = store
        self._timed = calls
        self._calls = calls.calls
        self._elapsed_ns = calls.elapsed_ns
        self._inputs = inputs
        self._activity = inputs.activity
        self._time = time
        self._controls = controls
        self._processors = self._calls.processors
        self._fields = FunctionFields(instance.function, self.operator, job.codec, self._calls.kept_by_name)
        self._watermarks: dict[str, Any] = {}
        self._opened = False
        self._closed = False
        self._settled = True
        self._records_in = 0
        self._chained_in = DefaultCounter()

    @property
    def ended(self) -> bool:
        """True if all inputs have ended and the function is closed."""
        return self._closed

    @property
    def takes_whole_batches(self) -> bool:
        """True if batches of its first input should not be split."""
        return self._processors[0].takes_whole_batches

    @property
    def emitter(self) -> Emitter:
        """An emitter for the operator chained upstream."""
        return ChainedEmitter(self, self._processors[0], self._chained_in)

    def control_from_chain(self, kind: int, identifier: str, value: Any) -> None:
        """Process a control element of the operator chained upstream."""
        with suspended(self._instance.origin):
            self._processors[0].flush()
            self.gates[0].receive(0, NO_RECORDS, [(0, kind, identifier, value)])

    def open(self) -> None:
        """Emit START downstream and call ``open`` of the function. Called once per subtask."""
        self._opened = True
        self._controls.send(START, "", 0)
        if self._inputs.waiting is not None:
            self._inputs.waiting.begin()
        self._calls.init()
        self._timed.run(self._calls.open)

    def close(self) -> None:
        """Call ``close`` of the function once, at the end or after a failure."""
        if self._opened and not self._closed:
            self._closed = True
            self._calls.close()

    def begin_batch(self) -> None:
        """Remove expired state and fire the timers that are due by the wall clock."""
        if not self._closed:
            self._timed.run(self._begin_batch)
            if not self._settled and not self._closed:
                self._settle()

    def _begin_batch(self) -> None:
        self._calls.expire()
        self._calls.fire_processing_timers(self._job.time.now_ms)
        self._time.follow_clock()
        self._inputs.rounds.on_time()

    def complete(self) -> None:
        """Complete the records that are in flight or buffered."""
        self._timed.run(self._processors[0].complete)

    def end_batch(self) -> None:
        """Complete all records, fire timers that were registered in the meantime, and call ``tick``."""
        self.complete()
        self.begin_batch()
        if not self._closed:
            self._inputs.expiry.expire(self._job.time.now_ms)
            self._timed.run(self._calls.tick, self._job.time.now_ms)

    def next_deadline(self) -> int | None:
        """Return when ``begin_batch`` must be called even without input, in ms; None if it need not be."""
        if self._closed:
            return None
        times = (
            self._calls.next_time_by_clock(),
            self._inputs.expiry.next_deadline(),
            self._inputs.rounds.next_deadline(),
        )
        return min((time for time in times if time is not None), default=None)

    def on_records(self, input_index: int, batch: RecordBatch[Any]) -> None:
        """Process records of one channel of an input, in order."""
        self._records_in += len(batch)
        before, began = self._timed.user_ns, self._elapsed_ns()
        self._processors[input_index].process(batch)
        self._timed.user_ns = before + self._elapsed_ns() - began

    def on_watermark(self, input_index: int, identifier: str, value: Any) -> None:
        """Process a combined watermark of an input: call the function and forward the watermark unless it polls it."""
        if identifier == EVENT_TIME:
            if value == PROCESSING_TIME:
                self._watermarks[USE_PROCESSING_TIME] = True
            else:
                self._watermarks[EVENT_TIME] = value
            self._time.on_watermark(input_index, value)
        else:
            self._on_generalized(input_index, identifier, value)
        if self._inputs.waiting is not None and input_index == 1:
            self._inputs.waiting.on_watermark(identifier, value)

    def _on_generalized(self, input_index: int, identifier: str, value: Any) -> None:
        self._watermarks[identifier] = value
        declaration = self._job.declarations[identifier]
        watermark = declaration.watermark_of(value)
        passes_on = identifier in self.operator.passes_on
        passes_on = passes_on or self._timed.forwards(input_index, watermark, declaration.default_handling_strategy)
        if declaration.scope.expires_after_ms is not None:
            self.gates[input_index].note_handled(identifier, passed_on=passes_on)
        if passes_on:
            self._inputs.combined.forward(input_index, declaration, value)

    def on_status(self, input_index: int, idle: bool) -> None:
        """Process a status change of an input. The operator is idle when all inputs that have not ended are idle."""
        self._inputs.combined.set_idle(input_index, idle)
        self._time.on_status(input_index, idle)

    def on_end(self, input_index: int) -> None:
        """Process the end of an input. After the last one, forward the end and close."""
        self._activity.end(input_index)
        self._time.on_end(input_index)
        self._timed.run(self._calls.end, input_index)
        self._inputs.combined.end(input_index)
        if self._inputs.waiting is not None and input_index == 1:
            self._inputs.waiting.on_end()
        if self._closed:
            return  # the first input had ended as well
        if self._activity.all_ended():
            self._controls.send(END, "", 0)
            self.close()
        else:
            self._activity.report_idle()

    def on_crossing(self, input_index: int, waiting: Mapping[int, str]) -> NoReturn:
        """Raise ``JobError``: aligned watermarks cross, so that no reading order can align them."""
        self._inputs.rounds.fail_crossing(input_index, waiting)

    def records_received(self) -> int:
        """Number of records received so far from all inputs."""
        return self._records_in + self._chained_in.count

    def visit(self, key: Any, visitor: Callable[[Any], R]) -> R:
        """Return ``visitor(ctx)``, called in the partition ``key`` between callbacks. For test harnesses."""
        return self._calls.visit(key, visitor)

    def keys(self) -> list[Any]:
        """Return the partitions of a keyed function. For test harnesses."""
        columns = self._calls.columns
        return list(self._store) if columns is None else list(columns.keys())

    def timers(self, domain: int, key: Any) -> list[int]:
        """Return the pending timers of ``key``, in ms. For test harnesses."""
        return list((self._store.find(key) or {}).get(domain, ()))

    def progress(self) -> SubtaskReport:
        """Return counts, watermarks and metrics."""
        columns = self._calls.columns
        return SubtaskReport(
            self.operator.uid,
            self._instance.subtask,
            records_in=self.records_received(),
            outputs=self._controls.records_sent(),
            watermarks={identifier: shown_value(value) for identifier, value in self._watermarks.items()},
            counters={name: counter.count for name, counter in self._calls.metrics.counters.items()},
            gauges={
                name: self._calls.attributed(f"gauge {name!r}", read)
                for name, read in self._calls.metrics.gauges.items()
            },
            histograms={name: one.parts() for name, one in self._calls.metrics.histograms.items()},
            records_held=self.records_held,
            keys=self._store.values_held if columns is None else columns.count,
            timers=self._store.timers if columns is None else columns.timers,
            event_time=self._time.reached,
            user_ns=self._timed.user_ns,
            ended=self._closed,
            inputs=[gate.report() for gate in self.gates],
        )

    @property
    def records_held(self) -> int:
        """Number of records that the gates hold back."""
        return sum(gate.held_records for gate in self.gates)

    def reset_times(self) -> None:
        """Begin to measure times again. Called between two micro-batches."""
        self._timed.user_ns = 0

    def owned_objects(self) -> list[object]:
        """Return objects that are on the stack when the operator runs, and not when others do."""
        return [self, *self._calls.owned_objects()]

    def take_letters(self) -> list[dict[str, Any]]:
        """Return and remove the dead letters that nothing reads, as they are stored."""
        return self._calls.take_letters()

    def process_again(self, input_index: int, batch: RecordBatch[Any]) -> None:
        """Process records of dead letters of an input, before anything else.

        Raises:
            JobError: The function is closed.
        """
        if self._closed:
            raise JobError(
                f"{self._instance.place} has ended, so it cannot process its dead letters again. Withdraw the request: "
                f"dsv2 dead-letters replay --withdraw."
            )
        if self.gates[input_index].blocked:
            self.gates[input_index].receive(0, batch, [])  # waits for the broadcast side
        else:
            self.on_records(input_index, batch)

    def name_unserializable(self) -> None:
        """Called when the ``snapshot`` cannot be encoded. Raises ``SerializationError`` if a field is the reason."""
        self._calls.attributed("__getstate__", self._fields.name_unserializable)

    def kept_fields(self) -> list[str]:
        """Return the names of the function's fields in the last ``snapshot``."""
        return self._fields.kept

    def keep_fields(self, names: Collection[str]) -> None:
        """Remove restored fields of the function whose names are not in ``names``."""
        self._fields.keep_only(names)

    @property
    def exceeds_memory(self) -> bool:
        """True if its keyed state should be spilled."""
        return self._store.exceeds_budget()

    def spill(self) -> None:
        """Store changed keyed state before the end of the micro-batch, to release memory. Call ``complete`` first."""
        self._store.snapshot()

    def snapshot(self) -> dict[str, Any]:
        """Return the state as built-in values, bytes and ``Nested`` fields. Encode it before anything else happens."""
        self._calls.begin_micro_batch()
        return {
            "fields": self._calls.attributed("__getstate__", self._fields.snapshot),
            "store": self._store.snapshot(),
            "subtask_state": self._calls.states.snapshot(),
            "gates": [gate.snapshot() for gate in self.gates],
            "watermarks": self._watermarks,
            "across_inputs": self._inputs.combined.snapshot(),
            **self._time.snapshot(),
            "lifecycle": (self._opened, self._closed),
            "records_in": self.records_received(),
            "counters": {name: counter.count for name, counter in self._calls.metrics.counters.items()},
            **({"metrics": metrics} if (metrics := self._calls.metrics.snapshot()) else {}),
            **self._calls.columns_snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore a ``snapshot``. The function is not opened again."""
        self._store.restore(state["store"])
        self._calls.restore_columns(state.get("columns", {}))
        self.restore_parts(state)

    def row_loader(self) -> RowLoader:
        """Return a loader for rows of a savepoint that belong to keys. ``restore_parts`` or ``open`` must follow."""
        if self._calls.columns is not None:
            loader: RowLoader = self._calls.columns.loader()
            return loader
        states = {declaration.name for declaration in self.operator.function.uses_states()}
        return RowLoader(self._store, states, self._job.codec, f"Keyed state of {self._instance.place}")

    def restore_parts(self, state: Mapping[str, Any]) -> None:
        """Restore everything in a ``snapshot`` but the keyed store."""
        for name, count in state["counters"].items():
            self._calls.metrics.counters[name] = DefaultCounter(name, count)
        self._calls.metrics.restore(state.get("metrics", {}))
        self._time.restore(state)
        self._calls.init()
        self._calls.attributed("__setstate__", self._fields.restore, state["fields"])
        self._calls.states.restore(state["subtask_state"])
        for gate, gate_state in zip(self.gates, state["gates"], strict=True):
            gate.restore(gate_state)
        if self._inputs.waiting is not None:
            self._inputs.waiting.continue_restored()
        self._watermarks = state["watermarks"]
        self._inputs.combined.restore(state["across_inputs"])
        self._opened, self._closed = state["lifecycle"]
        self._records_in = state["records_in"]
        self._settled = False

    def restore_states(self, states: Mapping[str, bytes]) -> None:
        """Restore the states of the subtask, of a function that is opened afterwards."""
        self._calls.states.restore(states)

    def _settle(self) -> None:
        """Report what has become true since the snapshot, because the parallelism has changed."""
        self._settled = True
        if self._inputs.waiting is None and self.gates[0].blocked:
            self.gates[0].unblock()  # the program no longer waits
        for index, gate in enumerate(self.gates):
            gate.settle()
            if gate.ended and index not in self._activity.ended:
                self.on_end(index)
        if not self._closed:
            self._activity.report_idle()

    def announce(self, control: Callable[[int, str, Any], None]) -> None:
        """Send a new consumer what earlier ones have received before it existed: event time, idleness, the end."""
        control(START, "", 0)
        self._controls.event_time.announce(control)
        if self._closed:
            control(END, "", 0)
