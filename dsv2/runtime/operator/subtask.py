"""The subtask: a chain of operators, engine-neutral. Takes frames in, gives frames out, can be put into bytes.

A runtime makes one per (chain, index), either ``open``s it or ``restore``s it, gives it frames with ``receive``,
and keeps what ``snapshot`` returns; each micro-batch is framed by ``begin_batch`` and ``end_batch``, and ``flush``
lets out what is held back. The same frames in the same order, at the same time, give the same frames and the same
snapshot again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, Plan
from dsv2.record_batch import RecordBatch
from dsv2.runtime.exchange.emitter import Observer
from dsv2.runtime.exchange.frames import Control, EmitFrame
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.operator.chain import PIECE_RECORDS, ChainBuilder
from dsv2.runtime.operator.function_instance import FunctionInstance
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.operator_task import OperatorTask
from dsv2.runtime.serde.codec import BlobKind

__all__ = ("Subtask",)


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
        observer: Observer | None = None,
    ) -> None:
        """``functions``: per operator id an object of this subtask's own. ``observer``: see ``ChainBuilder``."""
        self._plan = plan
        self._index = index
        self._functions = functions
        self._job = job
        self._emit = emit
        self._chain = ChainBuilder(plan, index, lambda operator: self._build(operator).emitter, observer)
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
        self._chain.flush_full(self._emit)

    def end_batch(self) -> None:
        """Let functions act on the time that has passed; no frames come any more in this micro-batch."""
        for task in reversed(self._tasks):
            self._guarded(task.end_batch)
        self._chain.flush_full(self._emit)

    def next_deadline(self) -> int | None:
        """When ``begin_batch`` should be called even if there are no frames, in ms; None: no need."""
        return min((time for task in self._tasks if (time := task.next_deadline()) is not None), default=None)

    def receive(self, channel: int, batch: RecordBatch[Any], controls: list[Control]) -> None:
        """Elements of one channel. Raises ``UserFunctionError`` for what a callback raised."""
        gate, number = self._channels[channel]
        if controls:
            self._guarded(lambda: gate.receive(number, batch, controls))
            self._chain.flush_full(self._emit)
            return
        for piece in [batch] if self._head.takes_whole_batches else batch.pieces(PIECE_RECORDS):
            self._guarded(partial(gate.receive, number, piece, controls))
            self._chain.flush_full(self._emit)

    def flush(self) -> None:
        """Send what is still held back for the sake of larger frames; called at the end of a micro-batch."""
        self._chain.flush(self._emit)

    def close(self) -> None:
        """Close the functions that are open, because the job has failed; what they raise now is passed over."""
        for task in self._tasks:
            with contextlib.suppress(Exception):  # the first failure is the one to report
                task.close()

    def snapshot(self) -> bytes:
        """The whole state as one blob. Call ``flush`` before."""
        state = {task.operator.uid: task.snapshot() for task in self._tasks}
        return self._job.codec.seal(BlobKind.STATE, (state, {edge.name: edge.snapshot() for edge in self._chain.edges}))

    def restore(self, blob: bytes) -> None:
        """Take over an earlier ``snapshot``. Raises ``CorruptDataError`` if the blob is not whole."""
        state, edges = self._job.codec.unseal(BlobKind.STATE, blob, self._owner)
        for task in self._tasks:
            task.restore(state[task.operator.uid])
        for edge in self._chain.edges:
            if edge.name in edges:  # else it leads to a sink that is new
                edge.restore(edges[edge.name])

    def progress(self) -> list[dict[str, Any]]:
        """Per operator of the chain what it has done so far, as plain values."""
        return [task.progress() for task in self._tasks]

    def kept_fields(self) -> dict[str, list[str]]:
        """Per uid the names of the function fields that the last ``snapshot`` holds, where there are any."""
        return {task.operator.uid: names for task in self._tasks if (names := task.kept_fields())}

    def _build(self, operator: Operator) -> OperatorTask:
        outputs = self._chain.outputs(operator)
        channels = [
            1 if self._plan.is_chained(edge) else self._plan.channels_of(edge)
            for edge in self._plan.edges_into[operator.id]
        ]
        instance = FunctionInstance(operator, self._index, self._functions[operator.id])
        task = OperatorTask(instance, channels, outputs, self._job)
        self._tasks.append(task)
        return task

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException:
            self.close()
            raise
