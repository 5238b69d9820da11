"""Reads a portion of a source in a worker: in a task of the source, or in the subtask that it feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from dsv2.base.clock import SystemClock, elapsed_ns
from dsv2.checkpoint.task_report import TaskReport
from dsv2.graph import Operator, Plan
from dsv2.runtime.exchange.frames import EmitFrame, Frame
from dsv2.runtime.sources.indexed_reading import IndexedReading
from dsv2.runtime.sources.offsets import ReaderOrder, Report
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.sources.split_reading import SplitReading
from dsv2.sources import BaseSource, IndexedSource, Source
from runtime_spark.frames.rows import OUTPUT_BYTES, FrameEncoder, Row
from runtime_spark.frames.worker import WorkerJob
from runtime_spark.platform.closures import from_bytes

_now_ms = SystemClock().now_ms
_END = object()
_READ_AT_ONCE = 16_384  # records of one subtask in memory at a time


@dataclass(frozen=True)
class IndexRange:
    """The portion of a subtask of an indexed source in one micro-batch: its own indices in ``start`` to ``stop``.

    ``first``: Whether the job begins. ``last``: Whether the source ends.
    """

    subtask: int
    start: int
    stop: int
    first: bool
    last: bool


ReadRange = IndexRange | ReaderOrder
"""The portion that a subtask of a source reads in one micro-batch."""


@dataclass(frozen=True)
class ReadOrder:
    """Orders a subtask to read a portion of the source with the operator id ``source`` itself."""

    source: int
    portion: ReadRange


def range_rows(job: WorkerJob, operator: Operator, source: BaseSource[Any], portion: ReadRange) -> Iterator[list[Row]]:
    """Read ``portion`` in a task of the source. Yields rows in lists of bounded size."""
    encoder = FrameEncoder(job.plan, job.layout, job.codec())
    for _ in _read(job, operator, source, portion, encoder.emit, encoder.report):
        if encoder.size >= OUTPUT_BYTES:
            yield encoder.take()
    yield encoder.take()


class SourceRead:
    """Reads the portion of an order in a subtask, frame by frame. A frame has the place that it would have as a row."""

    def __init__(self, job: WorkerJob, order: ReadOrder, report: Callable[[TaskReport], None]) -> None:
        source = job.plan.operators[order.source]
        self._frames = _frames(job, source, from_bytes(job.sources[source.id]), order.portion, report)
        self._seq = -1
        self.frame: Frame
        """The current frame. Not set before the first ``advance``."""

    @property
    def place(self) -> tuple[int, int]:
        """The sequence number and channel of the current frame."""
        return self._seq, self.frame.channel

    def advance(self) -> bool:
        """Read the next frame. Returns False if there are no more. Raises ``UserFunctionError`` if user code raises."""
        frame = next(self._frames, None)
        if frame is None:
            return False
        self.frame = frame
        self._seq += 1
        return True


def _frames(
    job: WorkerJob,
    operator: Operator,
    source: BaseSource[Any],
    portion: ReadRange,
    report: Callable[[TaskReport], None],
) -> Iterator[Frame]:
    frames: list[Frame] = []
    for _ in _read(job, operator, source, portion, frames.append, report):
        yield from frames
        frames.clear()
    yield from frames


def _read(
    job: WorkerJob,
    operator: Operator,
    source: BaseSource[Any],
    portion: ReadRange,
    emit: EmitFrame,
    report: Callable[[TaskReport], None],
) -> Iterator[None]:
    """Read ``portion`` of ``source``, the body of ``operator``, and ``emit`` it in frames. Yields repeatedly meanwhile.

    At the end, ``report`` receives the progress of the source and of the operators chained to it. Raises
    ``UserFunctionError`` if user code raises.
    """
    task = SourceTask(job.running_plan, operator, portion.subtask, emit, job.source_functions)
    readers: list[Report] = []
    if isinstance(portion, IndexRange):
        assert isinstance(source, IndexedSource)
        pieces = _read_indexed(source, job.plan, operator, portion, task)
    else:
        assert isinstance(source, Source)
        pieces = _read_splits(source, operator, portion, task, job, readers)
    began = _now_ms()
    yield from _timed(pieces, task)
    found = TaskReport.of_source(task, job.codec)
    *chained, of_source = found.subtasks
    subtasks = [*chained, replace(of_source, span=(began, _now_ms()))]
    report(replace(found, subtasks=subtasks, readers=readers))


def _timed(pieces: Iterator[None], task: SourceTask) -> Iterator[None]:
    """Measure the time in ``pieces``, without that of the consumer, which in a subtask processes each piece."""
    more = True
    while more:
        began = elapsed_ns()
        more = next(pieces, _END) is not _END
        task.user_ns += elapsed_ns() - began
        if more:
            yield


def _read_splits(
    source: Source[Any, Any, Any],
    operator: Operator,
    portion: ReaderOrder,
    task: SourceTask,
    job: WorkerJob,
    readers: list[Report],
) -> Iterator[None]:
    """Read ``portion``. Adds its report to ``readers``."""
    task.seek(portion.batch)
    reading = SplitReading(source, job.plan, operator, portion, task, job.codec)
    for _ in reading.run():
        yield
    task.flush()
    if (of_reader := reading.report()) is not None:
        readers.append(of_reader)


def _read_indexed(
    source: IndexedSource[Any], plan: Plan, operator: Operator, portion: IndexRange, task: SourceTask
) -> Iterator[None]:
    if portion.first:
        task.start()
    step, reading = operator.parallelism, IndexedReading(source, plan, operator, portion.subtask, task)
    own = range(portion.start + (portion.subtask - portion.start) % step, portion.stop, step)
    for begin in range(0, len(own), _READ_AT_ONCE):
        piece = own[begin : begin + _READ_AT_ONCE]
        task.seek((piece.start - portion.subtask) // step)
        reading.send(piece)
        yield
    task.end_portion()
    if portion.last:
        task.end()
    task.flush()
