"""The subtasks of a run in its own process, with queues between them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from dsv2.base.clock import Clock, elapsed_ns
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.local.checkpoint import SinkOutput
from dsv2.local.mutation import MutationCheck
from dsv2.local.readers import IndexedReader, SplitReader
from dsv2.local.state_pages import StatePages
from dsv2.local.task_group import TaskGroup
from dsv2.runtime.exchange.frames import EmitFrame, Frame
from dsv2.runtime.exchange.wire import Wire
from dsv2.runtime.operator.job_context import JobContext


class CancelledError(Exception):
    """Ends a micro-batch that ``stop`` has cancelled."""


class LocalTasks(TaskGroup):
    """All subtasks of a plan, and the readers of its sources.

    A channel is a queue of frames. Channels take turns, with whole frames; sources are read when no frame waits. In
    tests, ``choice`` determines which channel is processed next, how much is read, and where frames are split. So each
    seed results in one interleaving.

    Args:
        plan: The plan.
        job: Shared by the subtasks.
        clock: The job's clock.
        choice: Determines the interleaving. None: there is only one.
        to_sink: Called with each frame for a sink.
        checks: Whether frames are serialized, and records are compared.
        pages: Hold keyed state between micro-batches. None: it stays in memory.
        is_cancelled: Whether the running micro-batch is to end with ``CancelledError``.
    """

    def __init__(
        self,
        plan: Plan,
        job: JobContext,
        clock: Clock,
        choice: random.Random | None,
        to_sink: EmitFrame,
        *,
        checks: bool,
        pages: StatePages | None,
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._choice = choice
        self._to_sink = to_sink
        self._is_cancelled = is_cancelled
        self._wire = Wire(plan, job.codec) if checks else None
        self._sinks = {operator.id for operator in plan.operators if operator.kind is OperatorKind.SINK}
        self._queues: dict[tuple[int, int, int], deque[Frame]] = {}
        self._waiting: list[tuple[int, int, int]] = []  # the keys of the queues that are not empty
        places = [(head, index) for head in plan.chains for index in range(plan.operators[head].parallelism)]
        super().__init__(plan, job, clock, places, self._receive, pages, MutationCheck(job.codec) if checks else None)

    def new_readers(self, operator: Operator) -> list[Any]:
        """Create the readers of a source."""
        return [self.add_reader(operator, index) for index in range(operator.parallelism)]

    def run_batch(self, batch_id: int) -> None:
        """Run the micro-batch for which the readers have orders."""
        for subtask in self.subtasks.values():
            subtask.begin_batch()
            subtask.flush()
        self._process()
        for reader in self.readers.values():
            reader.task.end_portion()
            reader.task.flush()
        self._process()
        for subtask in self.subtasks.values():  # upstream first, so that the output of timers belongs to this batch
            subtask.end_batch()
            subtask.flush()
            self._process()
        if self._mutation is not None:
            self._mutation.verify()

    def take_outputs(self) -> list[SinkOutput]:
        """Return the records that worker processes write to sinks. There are none."""
        return []

    def end(self) -> None:
        """Called after the last micro-batch."""

    def _process(self) -> None:
        while True:
            if self._is_cancelled():
                raise CancelledError
            ready = [reader for reader in self.readers.values() if reader.can_read]
            if not ready and not self._waiting:
                break
            if self._choice is None:
                self._take_turns(ready)
            elif ready and (not self._waiting or self._choice.random() < 0.25):
                self._read(self._choice.choice(ready))
            else:
                self._deliver_one(self._choice)

    def _take_turns(self, ready: Sequence[IndexedReader | SplitReader]) -> None:
        for reader in () if self._waiting else ready:
            self._read(reader)
        waiting, self._waiting = self._waiting, []
        for key in waiting:
            queue = self._queues[key]
            frame = queue.popleft()
            if queue:
                self._waiting.append(key)
            self.receive(key[:2], key[2], frame)

    def _read(self, reader: IndexedReader | SplitReader) -> None:
        began = elapsed_ns()
        reader.read(self._choice)
        reader.task.user_ns += elapsed_ns() - began

    def _receive(self, frame: Frame) -> None:
        if self._wire is not None:
            frame = self._wire.send(frame)
        if frame.operator in self._sinks:
            self._to_sink(frame)
            return
        key = (frame.operator, frame.subtask, frame.channel)
        queue = self._queues.setdefault(key, deque())
        if not queue:
            self._waiting.append(key)
        queue.append(frame)

    def _deliver_one(self, choice: random.Random) -> None:
        chosen = choice.randrange(len(self._waiting))
        key = self._waiting[chosen]
        queue = self._queues[key]
        frame = queue.popleft()
        if len(frame.batch) > 1 and choice.random() < 0.5:
            frame, rest = frame.split(choice.randrange(1, len(frame.batch)))
            queue.appendleft(rest)
        if not queue:
            self._waiting[chosen] = self._waiting[-1]
            self._waiting.pop()
        self.receive(key[:2], key[2], frame)
