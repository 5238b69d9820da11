"""The subtask: an engine-neutral chain of operators that receives and emits frames.

A runtime creates one per (chain, index). It calls ``open``, ``restore`` or ``begin_restore`` once; in each micro-batch
``begin_batch``, ``receive`` for each frame, ``end_batch`` and ``flush``; and it stores the result of ``snapshot``. The
same frames in the same order at the same time produce the same frames and the same snapshot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from dsv2.base.log_scope import LogScope, in_scope
from dsv2.errors import SerializationError
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, Plan
from dsv2.model.record_batch import NO_RECORDS, RecordBatch
from dsv2.runtime.exchange.control_log import Control
from dsv2.runtime.exchange.emitter import Observer
from dsv2.runtime.exchange.frames import EmitFrame
from dsv2.runtime.exchange.gate import InputGate
from dsv2.runtime.exchange.position_tracing import CurrentPosition, TracedBatch
from dsv2.runtime.operator.chain import PIECE_RECORDS, ChainBuilder
from dsv2.runtime.operator.function_instance import FunctionInstance
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.operator.operator_task import OperatorTask
from dsv2.runtime.operator.subtask_restore import Announcement, SubtaskRestore, Succession
from dsv2.runtime.operator.task_builder import build_task
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.runtime.serde.codec import BlobKind
from dsv2.runtime.serde.least_size import least_size

_RECORDS_BETWEEN_CHECKS = 8192  # of the memory that keyed state takes: a check looks at every window


class Subtask:
    """Subtask ``index`` of the chain whose first operator is ``head``."""

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
        """Create the operators of the chain.

        Args:
            plan: The plan of the job.
            head: The id of the first operator.
            index: The index of the subtask.
            functions: The functions by operator id, not shared with other subtasks.
            job: Shared by all subtasks of the job.
            emit: Called with each frame that the subtask emits.
            observer: Called with every record that an operator emits.
        """
        self._plan = plan
        self._index = index
        self._functions = functions
        self._job = job
        self._emit = emit
        self._unchecked = 0
        self._origin = CurrentPosition() if plan.traces else None
        self._chain = ChainBuilder(plan, index, lambda operator: self._build(operator).emitter, observer, self._origin)
        self._tasks: list[OperatorTask] = []  # downstream first
        self._head = self._build(plan.operators[head])
        owners = None if len(self._tasks) == 1 else self._owners
        self._scope = LogScope(plan.job_name, self._head.operator.uid, index, owners)
        self._owner = f"State of {plan.operators[head]}, subtask {index}"
        self._channels: list[tuple[InputGate, int]] = [
            (gate, channel)
            for gate, edge in zip(self._head.gates, plan.edges_into[head], strict=True)
            for channel in range(plan.channels_of(edge))
        ]

    @property
    def head(self) -> OperatorTask:
        """The first operator of the chain. For test harnesses."""
        return self._head

    @property
    def ended(self) -> bool:
        """True if every input has ended and all functions are closed."""
        return all(task.ended for task in self._tasks)

    def open(self) -> None:
        """Open every function, the last one of the chain first. Not called after ``restore``."""
        for task in self._tasks:
            self._guarded(task.open)

    def begin_batch(self) -> None:
        """Remove expired state and fire the processing timers that have become due since the last micro-batch."""
        for task in reversed(self._tasks):
            self._guarded(task.begin_batch)
        self._chain.flush_full(self._emit)

    def end_batch(self) -> None:
        """Fire timers and call ``tick`` of functions. Called after the last frame of the micro-batch."""
        for task in reversed(self._tasks):
            self._guarded(task.end_batch)
        self._chain.flush_full(self._emit)

    def next_deadline(self) -> int | None:
        """Return when ``begin_batch`` must be called even without frames, in ms; None if it need not be."""
        return min((time for task in self._tasks if (time := task.next_deadline()) is not None), default=None)

    def receive(self, channel: int, batch: RecordBatch[Any], controls: list[Control]) -> None:
        """Process elements of one channel.

        Args:
            channel: The channel, numbered over all inputs.
            batch: The records.
            controls: Control elements, by position in ``batch``.

        Raises:
            UserFunctionError: A callback failed.
        """
        gate, number = self._channels[channel]
        if isinstance(batch, TracedBatch):
            batch = batch.received(self._origin)
        if controls:
            self._guarded(lambda: gate.receive(number, batch, controls))
            self._spill_excess(len(batch))
            self._chain.flush_full(self._emit)
            return
        for piece in [batch] if self._head.takes_whole_batches else batch.pieces(PIECE_RECORDS):
            self._guarded(partial(gate.receive, number, piece, controls))
            self._spill_excess(len(piece))
            self._chain.flush_full(self._emit)

    def complete(self) -> None:
        """Complete the records that are in flight or buffered, as at the end of a micro-batch."""
        for task in reversed(self._tasks):
            self._guarded(task.complete)

    def flush(self) -> None:
        """Emit everything that is buffered for larger frames. Called at the end of a micro-batch."""
        self._chain.flush(self._emit)

    def close(self) -> None:
        """Close the open functions because the job has failed. Errors that they raise now are ignored."""
        with in_scope(self._scope):
            for task in self._tasks:
                with contextlib.suppress(Exception):  # the first failure is the one to report
                    task.close()

    def snapshot(self) -> bytes:
        """Return the state as one blob. Call ``flush`` first."""
        return bytes(self.snapshot_in_place())

    def snapshot_in_place(self, check_size: Callable[[int], None] | None = None) -> bytearray:
        """Return the same as ``snapshot``, without a copy.

        Args:
            check_size: Called with a number of bytes that the blob exceeds, before it is made.

        Raises:
            SerializationError: A value cannot be serialized; names it.
        """
        self._unchecked = 0  # so that a repeated micro-batch spills at the same records
        with in_scope(self._scope):
            state = {task.operator.uid: task.snapshot() for task in self._tasks}
            whole = (state, {edge.name: edge.snapshot() for edge in self._chain.edges})
            if check_size is not None:
                check_size(least_size(whole))
            try:
                return self._job.codec.seal_in_place(BlobKind.STATE, whole)
            except SerializationError:
                for task in self._tasks:
                    task.name_unserializable()
                raise

    def restore(self, blob: bytes | memoryview) -> None:
        """Restore a ``snapshot``.

        Raises:
            CorruptDataError: The blob is damaged.
        """
        state, edges = self._job.codec.unseal(BlobKind.STATE, blob, self._owner)
        with in_scope(self._scope):
            for task in self._tasks:
                task.restore(state[task.operator.uid])
        for edge in self._chain.edges:
            if edge.name in edges:  # otherwise it leads to a new sink
                edge.restore(edges[edge.name])

    def begin_restore(self, succession: Succession) -> SubtaskRestore:
        """Begin to restore the subtask from the rows of a savepoint, instead of ``open`` or ``restore``."""
        operators = self._plan.operators
        chained = [edge for edge in self._plan.edges if self._plan.is_chained(edge)]
        chained_to = {operators[edge.target].uid: operators[edge.source].uid for edge in chained}
        edges, codec = self._chain.edges, self._job.codec
        return SubtaskRestore(
            self._tasks, edges, chained_to, self._index, succession, codec, self._guarded, self._receive_first
        )

    def progress(self) -> list[SubtaskReport]:
        """Return the report of each operator of the chain, the first one first."""
        with in_scope(self._scope):
            return [task.progress() for task in reversed(self._tasks)]

    def reset_times(self) -> None:
        """Begin to measure times again. Called between two micro-batches."""
        for task in self._tasks:
            task.reset_times()

    def take_letters(self) -> list[dict[str, Any]]:
        """Return and remove the dead letters that nothing reads, as they are stored. Called after ``end_batch``."""
        return [letter for task in reversed(self._tasks) for letter in task.take_letters()]

    def kept_fields(self) -> dict[str, list[str]]:
        """Return the function fields in the last ``snapshot``, by uid. Functions without any are left out."""
        return {task.operator.uid: names for task in self._tasks if (names := task.kept_fields())}

    def _build(self, operator: Operator) -> OperatorTask:
        outputs = self._chain.outputs(operator)
        channels = [
            1 if self._plan.is_chained(edge) else self._plan.channels_of(edge)
            for edge in self._plan.edges_into[operator.id]
        ]
        instance = FunctionInstance(operator, self._index, self._functions[operator.id], self._origin)
        task = build_task(instance, channels, outputs, self._job)
        self._tasks.append(task)
        return task

    def _receive_first(self, announcements: Iterable[Announcement]) -> None:
        self.begin_batch()  # what is due comes before the end of an input
        for channel, controls in announcements:
            self.receive(channel, NO_RECORDS, controls)

    def _spill_excess(self, records: int) -> None:
        self._unchecked += records
        if self._unchecked < _RECORDS_BETWEEN_CHECKS:
            return
        self._unchecked = 0
        excess = [task for task in self._tasks if task.exceeds_memory]
        if excess:
            self.complete()
            for task in excess:
                self._guarded(task.spill)

    def _guarded(self, action: Callable[[], object]) -> None:
        try:
            with in_scope(self._scope):
                action()
        except BaseException:
            self.close()
            raise

    def _owners(self) -> dict[int, str]:
        return {id(owned): task.operator.uid for task in self._tasks for owned in task.owned_objects()}
