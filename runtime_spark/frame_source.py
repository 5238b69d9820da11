"""A Python data source for Spark that yields frames: how collections and generators become a stream.

The reader lives on the driver's host; its offset, which Spark logs before each micro-batch, is all of its state. The
records of a micro-batch follow from the offsets alone, so a repeated batch repeats its frames.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from dsv2.clock import Clock
from dsv2.graph import Operator
from dsv2.runtime.failure import raise_user_failure
from dsv2.runtime.source_task import SourceTask
from dsv2.sources import CollectionSource, IndexedSource, Interruption
from runtime_spark.closures import from_bytes, to_bytes
from runtime_spark.failures import marked_failures
from runtime_spark.interruptions import Interruptions
from runtime_spark.rows import ROW_SCHEMA, FrameEncoder, Row, to_arrow
from runtime_spark.worker import WorkerJob, load_job, patient_collector

__all__ = (
    "DEFAULT_RECORDS_PER_BATCH",
    "Feed",
    "IndexedFeed",
    "Split",
    "StartFeed",
    "TickFeed",
    "frame_source_class",
)

DEFAULT_RECORDS_PER_BATCH = 1_000_000
_READ_AT_ONCE = 16_384  # records of one subtask in memory at a time
_OUTPUT_BYTES = 16 << 20
_BEFORE_START = -1
_PACE_SECONDS = 0.01


@dataclass(frozen=True)
class Split:
    """What one source subtask reads in one micro-batch: those of the indices ``start`` to ``stop`` that are its own.

    ``first`` and ``last``: the job begins, the source ends.
    """

    subtask: int
    start: int
    stop: int
    first: bool
    last: bool


class Feed(ABC):
    """What a frame source sends: how much there is, how fast, and the rows of a split."""

    count: int | None = None
    records_per_batch: int | None = None
    records_per_second: float | None = None
    interruptions: Mapping[int, Interruption] = MappingProxyType({})
    made_on_driver = True
    """Whether rows are made with the splits, on the driver's host, rather than in the tasks."""

    def subtasks(self, job: WorkerJob, operator_id: int) -> int:
        """Into how many splits a micro-batch is cut."""
        return job.plan.operators[operator_id].parallelism

    @abstractmethod
    def rows(self, job: WorkerJob, operator_id: int, split: Split) -> Iterator[list[Row]]:
        """The rows of ``split``, in portions of bounded size."""


class IndexedFeed(Feed):
    """The records of an indexed source."""

    def __init__(self, source: IndexedSource[Any]) -> None:
        self.source = source
        self.count = source.count
        self.records_per_batch = source.records_per_batch
        self.records_per_second = source.records_per_second
        self.interruptions = source.interruptions
        self.made_on_driver = isinstance(source, CollectionSource)  # its elements are there, and only there

    def rows(self, job: WorkerJob, operator_id: int, split: Split) -> Iterator[list[Row]]:
        operator = job.plan.operators[operator_id]
        encoder = FrameEncoder(job.plan, job.layout, job.codec())
        task = SourceTask(job.plan, operator, split.subtask, encoder.emit, job.source_functions)
        if split.first:
            task.start()
        step = operator.parallelism
        own = range(split.start + (split.subtask - split.start) % step, split.stop, step)
        for begin in range(0, len(own), _READ_AT_ONCE):
            piece = own[begin : begin + _READ_AT_ONCE]
            task.seek((piece.start - split.subtask) // step)
            task.send(self._read(piece, operator, split))
            if encoder.size >= _OUTPUT_BYTES:
                yield encoder.take()
        task.end_portion()
        if split.last:
            task.end()
        task.flush()
        encoder.report(task.progress())
        yield encoder.take()

    def _read(self, indices: range, operator: Operator, split: Split) -> list[Any]:
        try:
            return self.source.read(indices)
        except BaseException as error:
            raise_user_failure(operator, split.subtask, "read", error)


class StartFeed(Feed):
    """Opens the subtasks behind a streaming DataFrame, which cannot tell its own first micro-batch. Never ends."""

    records_per_second = 0.0

    def rows(self, job: WorkerJob, operator_id: int, split: Split) -> Iterator[list[Row]]:
        encoder = FrameEncoder(job.plan, job.layout, job.codec())
        task = SourceTask(job.plan, job.plan.operators[operator_id], split.subtask, encoder.emit, job.source_functions)
        task.start()
        task.flush()
        yield encoder.take()


class TickFeed(Feed):
    """The numbers 0 to ``count`` - 1 in ``seq``, one in a micro-batch."""

    records_per_batch = 1

    def __init__(self, count: int) -> None:
        self.count = count

    def subtasks(self, job: WorkerJob, operator_id: int) -> int:
        return 1

    def rows(self, job: WorkerJob, operator_id: int, split: Split) -> Iterator[list[Row]]:
        yield [(0, 0, number, b"") for number in range(split.start, split.stop)]


@dataclass(frozen=True)
class FramePartition(InputPartition):
    """A split on its way to a task, with its rows where they are made already."""

    split: Split
    rows: tuple[Row, ...] | None = None


def frame_source_class(name: str, feed: Feed, packed: bytes, operator_id: int, clock: Clock) -> type[DataSource]:
    """A data source class for ``spark.dataSource.register``, under ``name``."""
    pickled = to_bytes((feed, clock))

    class FrameSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return ROW_SCHEMA

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
            return FrameStreamReader(pickled, packed, operator_id)

    return FrameSource


class FrameStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are ``{"position": index of the next record}``; -1 before anything was sent."""

    def __init__(self, pickled: bytes, packed: bytes, operator_id: int) -> None:
        self._pickled = pickled
        self._packed = packed
        self._operator_id = operator_id
        self._feed: Feed
        self._clock: Clock
        self._feed, self._clock = from_bytes(pickled)
        self._began: tuple[int, int] | None = None  # time in ms and position at the first question
        self._goal: int | None = None
        self._interruptions = Interruptions(self._feed.interruptions)
        self._only_available = False

    def __getstate__(self) -> dict[str, Any]:
        # To a task goes what it needs to make rows, and nothing when they are made already.
        pickled = b"" if self._feed.made_on_driver else self._pickled
        return {"_pickled": pickled, "_packed": self._packed, "_operator_id": self._operator_id}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"position": _BEFORE_START}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._only_available = True

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable()  # the feed itself knows its limits

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        position, count = max(start["position"], 0), self._feed.count
        if self._held(start["position"]):
            return {"position": position}
        available = self._available(position)
        while self._only_available and count is not None and available == position < count:
            # What is there now is everything, at its own pace; an offset that stays would end the query.
            time.sleep(_PACE_SECONDS)
            available = self._available(position)
        stop = position + (self._feed.records_per_batch or DEFAULT_RECORDS_PER_BATCH)
        if available is not None:
            stop = min(stop, available)
        if self._only_available and count is None:
            if self._goal is None:
                self._goal = stop if available is None else available
            stop = min(stop, self._goal)
        if (place := self._interruptions.next(position)) is not None:
            stop = min(stop, place)
        return {"position": max(stop, position)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        begin, stop = start["position"], end["position"]
        self._interruptions.begin(begin)
        if begin == stop:
            return []
        job = load_job(self._packed)
        first, last = begin == _BEFORE_START, stop == self._feed.count
        return [
            self._partition(job, Split(subtask, max(begin, 0), stop, first, last))
            for subtask in range(self._feed.subtasks(job, self._operator_id))
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FramePartition)
        if partition.rows is not None:
            if partition.rows:
                yield to_arrow(partition.rows)
            return
        feed, _ = from_bytes(self._pickled)
        with marked_failures(), patient_collector():
            for rows in feed.rows(load_job(self._packed), self._operator_id, partition.split):
                yield to_arrow(rows)

    def _partition(self, job: WorkerJob, split: Split) -> FramePartition:
        partition = FramePartition(split)
        if not self._feed.made_on_driver:
            return partition
        with marked_failures():
            portions = self._feed.rows(job, self._operator_id, split)
            return replace(partition, rows=tuple(row for portion in portions for row in portion))

    def _held(self, position: int) -> bool:
        if not self._feed.interruptions:
            return False
        self._interruptions.begin(position)
        operator = load_job(self._packed).plan.operators[self._operator_id]
        with marked_failures():
            return self._interruptions.hold(max(position, 0), operator, self._clock, wait=self._only_available)

    def _available(self, position: int) -> int | None:
        """How far the feed may be read by now; None: as far as one likes."""
        limits = [] if self._feed.count is None else [self._feed.count]
        if self._feed.records_per_second is not None:
            if self._began is None:
                self._began = (self._clock.now_ms(), position)
            began, base = self._began
            elapsed = self._clock.now_ms() - began
            limits.append(base + int(elapsed * self._feed.records_per_second / 1000))
        return min(limits) if limits else None
