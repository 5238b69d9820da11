"""Parallel sinks: each subtask writes its own records (Flink ``Sink``, FLIP-143, adapted to micro-batches)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

from dsv2.base.type_variables import T, T_co
from dsv2.model.record_batch import RecordBatch
from dsv2.sinks.info import SinkInfo
from dsv2.sinks.sink import Sink


@dataclass(frozen=True, slots=True)
class SinkBatch(Generic[T_co]):
    """The records of one subtask in one micro-batch.

    A micro-batch that is retried after a failure has the same id and the same records in the same order. An earlier
    attempt may still be running.

    Attributes:
        info: The identity of the sink.
        subtask: The index of the subtask.
        batch_id: The id of the micro-batch.
        batches: The records, a few thousand at a time, in order per channel. It can be iterated once.
    """

    info: SinkInfo
    subtask: int
    batch_id: int
    batches: Iterator[RecordBatch[T_co]]


class ParallelSink(Sink[T], Generic[T]):
    """Base class of sinks that are written in tasks, or in the worker processes of the local runtime.

    The sink is pickled and sent to them before ``begin`` is called, so open connections in ``write``. With one local
    process it is not pickled.
    """

    @abstractmethod
    def write(self, batch: SinkBatch[T]) -> None:
        """Called in a task for each subtask that has records.

        The records must be durable when this method returns. A second call with the same ``batch_id`` must not
        duplicate records.
        """
