"""Sinks that the tasks write: each subtask its own records (Flink FLIP-143 ``Sink``, made for micro-batches)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from dsv2.record_batch import RecordBatch
from dsv2.sinks.info import SinkInfo
from dsv2.sinks.sink import Sink

__all__ = ("ParallelSink", "SinkBatch")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class SinkBatch(Generic[T_co]):
    """What one subtask writes: its records of one micro-batch.

    ``batches`` gives them once, some thousand at a time. Records of one channel come in their order. A micro-batch that
    is repeated, because something failed before it was complete, has the same id and the same records in the same
    order; an earlier attempt at it may still be running.
    """

    info: SinkInfo
    subtask: int
    batch_id: int
    batches: Iterator[RecordBatch[T_co]]


class ParallelSink(Sink[T], Generic[T]):
    """Base of sinks that the tasks write. It is pickled on its way there: connections are made in ``write``."""

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        """Called on the driver when a run is about to write its first micro-batch, which may be a repeated one.

        The place to check that the outside world is ready. What it raises fails the job.
        """

    @abstractmethod
    def write(self, batch: SinkBatch[T]) -> None:
        """Write one batch; called in a task, for each subtask that has records.

        It is there when this returns. If this is called again with the same id, nothing may be there twice.
        """
