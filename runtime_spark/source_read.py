"""Reading a part of a source in a worker: in a task of the source, or in the subtask of the chain that it feeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dsv2.graph import Operator
from dsv2.record_batch import RecordBatch
from dsv2.runtime.exchange.frames import EmitFrame, Frame
from dsv2.runtime.report.failure import raise_user_failure
from dsv2.runtime.sources.offsets import ReaderOrder
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.sources.split_reading import SplitReading
from dsv2.sources import BaseSource, IndexedSource, Source
from runtime_spark.closures import from_bytes
from runtime_spark.rows import OUTPUT_BYTES, FrameEncoder, Row
from runtime_spark.worker import WorkerJob

__all__ = ("ReadOrder", "ReadRange", "SourceRead", "IndexRange", "range_rows")

_READ_AT_ONCE = 16_384  # records of one subtask in memory at a time


@dataclass(frozen=True)
class IndexRange:
    """What a subtask of an indexed source reads in one micro-batch: of the indices ``start`` to ``stop`` its own.

    ``first`` and ``last``: the job begins, the source ends.
    """

    subtask: int
    start: int
    stop: int
    first: bool
    last: bool


ReadRange = IndexRange | ReaderOrder
"""What a subtask of a source reads in one micro-batch."""


@dataclass(frozen=True)
class ReadOrder:
    """Has a subtask read a portion of the source with the id ``source`` itself."""

    source: int
    portion: ReadRange


def range_rows(job: WorkerJob, operator: Operator, source: BaseSource[Any], portion: ReadRange) -> Iterator[list[Row]]:
    """What is read of ``portion``, as rows, in lists of bounded size: in a task of the source."""
    encoder = FrameEncoder(job.plan, job.layout, job.codec())
    for _ in _read(job, operator, source, portion, encoder.emit, encoder.report):
        if encoder.size >= OUTPUT_BYTES:
            yield encoder.take()
    yield encoder.take()


class SourceRead:
    """What a subtask reads by an order, frame by frame, each at the place where it would have come as a row."""

    def __init__(self, job: WorkerJob, order: ReadOrder, report: Callable[[list[dict[str, Any]]], None]) -> None:
        source = job.plan.operators[order.source]
        self._frames = _frames(job, source, from_bytes(job.sources[source.id]), order.portion, report)
        self._seq = -1
        self.frame: Frame
        """The frame in hand; none before the first ``advance``."""

    @property
    def place(self) -> tuple[int, int]:
        """Its sequence number and channel."""
        return self._seq, self.frame.channel

    def advance(self) -> bool:
        """Read the next frame; False: there are no more. Raises ``UserFunctionError`` for what user code raises."""
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
    report: Callable[[list[dict[str, Any]]], None],
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
    report: Callable[[list[dict[str, Any]]], None],
) -> Iterator[None]:
    """Read ``portion`` of ``source``, the body of ``operator``, and ``emit`` it in frames; yields now and then.

    ``report`` gets at the end what the source and what is chained to it have done. Raises ``UserFunctionError`` for
    what user code raises.
    """
    task = SourceTask(job.plan, operator, portion.subtask, emit, job.source_functions)
    if isinstance(portion, IndexRange):
        assert isinstance(source, IndexedSource)
        yield from _read_indexed(source, operator, portion, task)
        task.flush()
        report(task.progress())
        return
    assert isinstance(source, Source)
    task.seek(portion.batch)
    reading = SplitReading(source, job.plan, operator, portion, task)
    for _ in reading.run():
        yield
    task.flush()
    found_out = reading.report()
    report([*task.progress(), *([] if found_out is None else [found_out])])


def _read_indexed(
    source: IndexedSource[Any], operator: Operator, portion: IndexRange, task: SourceTask
) -> Iterator[None]:
    if portion.first:
        task.start()
    step = operator.parallelism
    own = range(portion.start + (portion.subtask - portion.start) % step, portion.stop, step)
    for begin in range(0, len(own), _READ_AT_ONCE):
        piece = own[begin : begin + _READ_AT_ONCE]
        task.seek((piece.start - portion.subtask) // step)
        task.send(RecordBatch(_records(source, piece, operator, portion.subtask)))
        yield
    task.end_portion()
    if portion.last:
        task.end()


def _records(source: IndexedSource[Any], indices: range, operator: Operator, subtask: int) -> list[Any]:
    try:
        return source.read(indices)
    except BaseException as error:
        raise_user_failure(operator, subtask, "read", error)
