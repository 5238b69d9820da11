"""The subtasks and readers of one worker process, which run level by level, as on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from msgspec.structs import replace

from dsv2.base.clock import Clock, elapsed_ns
from dsv2.checkpoint.task_report import TaskReport
from dsv2.graph import OperatorKind
from dsv2.local.mutation import MutationCheck
from dsv2.local.sinks import sealed_output
from dsv2.local.state_pages import StatePages
from dsv2.local.task_group import Place, TaskGroup
from dsv2.local.workers.messages import Emitted, LevelOrder, SentFrame, SentJob, worker_of
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.exchange.wire import Wire
from dsv2.runtime.operator.job_context import JobContext


class LevelTasks(TaskGroup):
    """The subtasks of a worker, and its readers.

    A level receives the frames of earlier ones. The channels of a subtask take turns frame by frame.

    Args:
        job: The job.
        number: The worker.
        context: Shared by the subtasks.
        clock: The job's clock.
        pages: Hold keyed state between micro-batches. None: it stays in memory.
    """

    def __init__(self, job: SentJob, number: int, context: JobContext, clock: Clock, pages: StatePages | None) -> None:
        plan = job.plan
        self._count = job.settings.count
        self._checks = job.settings.checks
        self._wire = Wire(plan, context.codec)
        self._queues: dict[Place, dict[int, list[Frame]]] = {}
        self._emitted = Emitted()
        operators = [plan.operators[head] for head in plan.chains]
        places = [(one.id, index) for one in operators for index in self._own(one.parallelism, number)]
        mutation = MutationCheck(context.codec) if self._checks else None
        super().__init__(plan, context, clock, places, self._send, pages, mutation)
        for source in (one for one in plan.operators if one.kind is OperatorKind.SOURCE):
            for index in self._own(source.parallelism, number):
                self.add_reader(source, index)

    def run_level(self, order: LevelOrder) -> None:
        """Run the subtasks of a level, or the readers for level 0. Records must not be modified by the last one."""
        for sent in order.frames:
            self._enqueue(self._wire.decoded(*sent))
        for place, calls in order.orders:
            for call in calls:
                call(self.readers[place])
        if order.level == 0:
            self._read()
        for place, subtask in self.subtasks.items():
            if self._plan.depths[place[0]] == order.level:
                subtask.begin_batch()
                subtask.flush()
                for channel, frame in _in_turns(self._queues.pop(place, {})):
                    self.receive(place, channel, frame)
                subtask.end_batch()
                subtask.flush()
        if order.ends is not None and self._mutation is not None:
            self._mutation.verify()

    def take_emitted(self) -> Emitted:
        """Return and remove the frames for other workers and for sinks."""
        emitted, self._emitted = self._emitted, Emitted()
        return emitted

    def report(self) -> TaskReport:
        """Return the report since the last call of ``take_report``."""
        deadline = self.next_deadline()
        return replace(super().report(), deadlines=[] if deadline is None else [deadline])

    def _own(self, parallelism: int, number: int) -> list[int]:
        return [index for index in range(parallelism) if worker_of(index, self._count) == number]

    def _read(self) -> None:
        for reader in self.readers.values():
            began = elapsed_ns()
            while reader.can_read:
                reader.read(None)
            reader.task.end_portion()
            reader.task.flush()
            reader.task.user_ns += elapsed_ns() - began

    def _send(self, frame: Frame) -> None:
        if frame.operator not in self._plan.chains:
            if frame.batch:
                content = sealed_output(frame.batch, self._job.codec)
                self._emitted.to_sinks.append(SentFrame(frame.operator, frame.subtask, frame.channel, content))
        elif (frame.operator, frame.subtask) in self.subtasks:
            self._enqueue(self._wire.send(frame) if self._checks else frame)
        else:
            sent = SentFrame(frame.operator, frame.subtask, frame.channel, self._wire.encoded(frame))
            self._emitted.frames.setdefault(worker_of(frame.subtask, self._count), []).append(sent)

    def _enqueue(self, frame: Frame) -> None:
        queues = self._queues.setdefault((frame.operator, frame.subtask), {})
        queues.setdefault(frame.channel, []).append(frame)


def _in_turns(queues: dict[int, list[Frame]]) -> Iterator[tuple[int, Frame]]:
    for frames in zip_longest(*(queues[channel] for channel in sorted(queues))):
        for frame in frames:
            if frame is not None:
                yield frame.channel, frame
