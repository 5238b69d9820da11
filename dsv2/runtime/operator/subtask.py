"""The subtask: a chain of operators, engine-neutral. Takes frames in, gives frames out, can be put into bytes.

A runtime makes one per (chain, index), either ``open``s it or ``restore``s it, gives it frames with ``receive``,
and keeps what ``snapshot`` returns; each micro-batch is framed by ``begin_batch`` and ``end_batch``, and ``flush``
lets out what is held back. The same frames in the same order, at the same time, give the same frames and the same
snapshot again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsv2.columnar import Columnar
from dsv2.functions import CollectAll, ProcessFunction
from dsv2.graph import Edge, Operator, Plan
from dsv2.runtime.exchange.frames import MAX_FRAME_RECORDS, Control, EmitFrame, Timestamps
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.exchange.outputs import Collect, CollectStamped, EdgeOutput, Output, fan_out, fan_out_stamped
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.operator_task import OperatorTask
from dsv2.runtime.serde.codec import BlobKind

__all__ = ("Subtask", "Watch")

_PIECE = 1024  # records processed before full channels are looked for: bounds what a flat_map piles up

Watch = Callable[[Operator, Any], None]
"""Is told of every record that an operator emits."""


class Subtask:
    """Subtask ``index`` of the chain that ``head`` leads."""

    def __init__(
        self,
        plan: Plan,
        head: int,
        index: int,
        functions: Mapping[int, ProcessFunction],
        job: JobContext,
        emit: EmitFrame,
        watch: Watch | None = None,
    ) -> None:
        """``functions``: per operator id an object of this subtask's own."""
        self._plan = plan
        self._index = index
        self._functions = functions
        self._job = job
        self._emit = emit
        self._watch = watch
        self._edges: list[EdgeOutput] = []
        self._tasks: list[OperatorTask] = []  # downstream first
        self._head = self._build(plan.operators[head])
        self._owner = f"State of {plan.operators[head]}, subtask {index}"
        self._channels: list[tuple[InputGate, int]] = [
            (gate, channel)
            for gate, edge in zip(self._head.gates, plan.edges_into[head], strict=True)
            for channel in range(plan.channels_of(edge))
        ]

    @property
    def head(self) -> OperatorTask:
        """The operator that leads the chain; for test harnesses."""
        return self._head

    @property
    def ended(self) -> bool:
        """Whether every input has ended; nothing can come any more."""
        return all(task.ended for task in self._tasks)

    def open(self) -> None:
        """Open every function, the last of the chain first. Not after ``restore``."""
        for task in self._tasks:
            self._guarded(task.open)

    def begin_batch(self) -> None:
        """Fire the processing-time timers that have come due since the last micro-batch."""
        for task in reversed(self._tasks):
            self._guarded(task.begin_batch)
        self._flush_full()

    def end_batch(self) -> None:
        """Let functions act on the time that has passed; no frames come any more in this micro-batch."""
        for task in reversed(self._tasks):
            self._guarded(task.end_batch)
        self._flush_full()

    def next_deadline(self) -> int | None:
        """When ``begin_batch`` should be called even if there are no frames, in ms; None: no need."""
        return min((time for task in self._tasks if (time := task.next_deadline()) is not None), default=None)

    def receive(
        self, channel: int, records: Sequence[Any], controls: list[Control], timestamps: Timestamps = None
    ) -> None:
        """Elements of one channel. Raises ``UserFunctionError`` for what a callback raised."""
        gate, number = self._channels[channel]
        if controls:
            self._guarded(lambda: gate.receive(number, records, controls, timestamps))
            self._flush_full()
            return
        size = len(records) if self._head.takes_columns else _PIECE
        for start in range(0, len(records), max(1, size)):
            piece = slice(start, start + size)
            stamps = None if timestamps is None else timestamps[piece]
            self._guarded(lambda piece=piece, stamps=stamps: gate.receive(number, records[piece], controls, stamps))  # type: ignore[misc]
            self._flush_full()

    def flush(self) -> None:
        """Send what is still held back for the sake of larger frames; called at the end of a micro-batch."""
        for edge in self._edges:
            edge.flush(self._emit)

    def close(self) -> None:
        """Close the functions that are open, because the job has failed; what they raise now is passed over."""
        for task in self._tasks:
            with contextlib.suppress(Exception):  # the first failure is the one to report
                task.close()

    def snapshot(self) -> bytes:
        """The whole state as one blob. Call ``flush`` before."""
        state = {task.operator.uid: task.snapshot() for task in self._tasks}
        return self._job.codec.seal(BlobKind.STATE, (state, {edge.name: edge.snapshot() for edge in self._edges}))

    def restore(self, blob: bytes) -> None:
        """Take over an earlier ``snapshot``. Raises ``CorruptDataError`` if the blob is not whole."""
        state, edges = self._job.codec.unseal(BlobKind.STATE, blob, self._owner)
        for task in self._tasks:
            task.restore(state[task.operator.uid])
        for edge in self._edges:
            if edge.name in edges:  # else it leads to a sink that is new
                edge.restore(edges[edge.name])

    def progress(self) -> list[dict[str, Any]]:
        """Per operator of the chain what it has done so far, as plain values."""
        return [task.progress() for task in self._tasks]

    def kept_fields(self) -> dict[str, list[str]]:
        """Per uid the names of the function fields that the last ``snapshot`` holds, where there are any."""
        return {task.operator.uid: names for task in self._tasks if (names := task.kept_fields())}

    def _build(self, operator: Operator) -> OperatorTask:
        outputs = [self._output(operator, number) for number in range(len(operator.output_keys))]
        channels = [
            1 if self._plan.is_chained(edge) else self._plan.channels_of(edge)
            for edge in self._plan.edges_into[operator.id]
        ]
        task = OperatorTask(operator, self._index, self._functions[operator.id], channels, outputs, self._job)
        self._tasks.append(task)
        return task

    def _output(self, operator: Operator, number: int) -> Output:
        consumers = [self._consumer(edge) for edge in self._plan.edges_out_of[operator.id] if edge.output == number]
        if not consumers:
            return _NOWHERE
        collect = fan_out([consumer.collect for consumer in consumers])
        collect_stamped = fan_out_stamped([consumer.collect_stamped for consumer in consumers])
        collect_all = _all_of([consumer.collect_all for consumer in consumers])
        if self._watch is not None:
            collect, collect_stamped, collect_all = _watched(
                self._watch, operator, collect, collect_stamped, collect_all
            )

        def control(kind: int, identifier: str, value: int | bool) -> None:
            for consumer in consumers:
                consumer.control(kind, identifier, value)

        return Output(collect, collect_stamped, collect_all, control, consumers[0].records_sent)

    def _consumer(self, edge: Edge) -> Output:
        if self._plan.is_chained(edge):
            task = self._build(self._plan.operators[edge.target])
            return Output(*task.collectors(), task.control_from_chain, task.records_received)
        output = EdgeOutput(self._plan, edge, self._index)
        self._edges.append(output)
        return Output(
            output.collect,
            output.collect_stamped,
            output.collect_all,
            output.control,
            lambda: output.records_sent,
        )

    def _flush_full(self) -> None:
        for edge in self._edges:
            edge.flush(self._emit, MAX_FRAME_RECORDS - _PIECE)

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException:
            self.close()
            raise


_NOWHERE = Output(
    lambda record: None,
    lambda record, timestamp: None,
    lambda records, timestamps: None,
    lambda kind, identifier, value: None,
    lambda: 0,
)


def _all_of(collects: Sequence[CollectAll]) -> CollectAll:
    if len(collects) == 1:
        return collects[0]

    def collect_all(records: Sequence[Any], timestamps: Timestamps) -> None:
        for collect in collects:
            collect(records, timestamps)

    return collect_all


def _watched(
    watch: Watch, operator: Operator, collect: Collect, collect_stamped: CollectStamped, collect_all: CollectAll
) -> tuple[Collect, CollectStamped, CollectAll]:
    def watched(record: Any) -> None:
        watch(operator, record)
        collect(record)

    def watched_stamped(record: Any, timestamp: int | None) -> None:
        watch(operator, record)
        collect_stamped(record, timestamp)

    def watched_all(records: Sequence[Any], timestamps: Timestamps) -> None:
        if not isinstance(records, Columnar):  # columns cannot change
            for record in records:
                watch(operator, record)
        collect_all(records, timestamps)

    return watched, watched_stamped, watched_all
