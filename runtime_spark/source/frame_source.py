"""A Python data source for Spark that yields frames.

The reader runs on the driver's host. Its only state is the offset, which Spark logs before each micro-batch. The
offsets alone determine the records of a micro-batch, so a repeated micro-batch repeats its frames.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from dsv2.base.clock import Clock
from dsv2.base.garbage_collector import patient_collector
from dsv2.graph import Operator, Plan
from dsv2.jobs.progress import SplitProgress
from dsv2.model.record_batch import NO_RECORDS
from dsv2.runtime.exchange.frames import Frame
from dsv2.runtime.operator.callback_limit import callback_limit
from runtime_spark.frames.failures import marked_failures
from runtime_spark.frames.layout import REPORT_SLOT
from runtime_spark.frames.rows import ORDER_CHANNEL, FrameEncoder, Row, to_arrow
from runtime_spark.frames.worker import WorkerJob, load_job
from runtime_spark.frames.worker_resources import worker_resources
from runtime_spark.platform.available_now import SupportsTriggerAvailableNow
from runtime_spark.platform.closures import from_bytes, to_bytes
from runtime_spark.source.source_read import ReadOrder
from runtime_spark.source.split_files import SplitFile

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

PACE_SECONDS = 0.01
"""The pause between two checks for new input."""

_TASK_BYTES = 1 << 20  # of payload that a task passes on; a task costs more than that

SparkOffset: TypeAlias = dict[str, Any]


class Planner(ABC):
    """Decides where the micro-batches of one source end, for one run of the job.

    Runs on the driver's host, where Spark calls it through ``FrameStreamReader``.
    """

    @abstractmethod
    def initial(self) -> SparkOffset:
        """Return the offset at which a new job begins."""

    @abstractmethod
    def latest(self, start: SparkOffset, *, only_available: bool) -> SparkOffset:
        """Return where the micro-batch after ``start`` ends; ``start`` if there is no new input.

        ``only_available``: The job ends when this returns ``start``, so wait for input that is certain to come.
        """

    @abstractmethod
    def portions(self, start: SparkOffset, end: SparkOffset) -> Sequence[Any]:
        """Return the portions between two offsets, one for each task of the micro-batch."""

    def splits(self) -> Sequence[SplitProgress]:
        """Return the progress of the splits after ``latest``."""
        return ()

    def commit(self, offset: SparkOffset) -> None:  # noqa: B027 - optional
        """Called when the micro-batch up to ``offset`` is committed."""

    def close(self) -> None:  # noqa: B027 - optional
        """Called at the end of the run."""


class Feed(ABC):
    """The input of a frame source: a planner, and the rows of each portion."""

    made_on_driver = True
    """True if rows are created on the driver's host, together with the portions, instead of in the tasks."""
    made_of_frames = True
    """True if rows are frames, so that other frames can be added to them."""
    splits_folder: str | None = None
    """The folder in which ``SplitFile`` passes the progress of splits to the driver. None: it is not known."""

    @abstractmethod
    def planner(self, operator: Operator, clock: Clock) -> Planner:
        """Create a planner for one run."""

    @abstractmethod
    def rows(self, job: WorkerJob, operator: Operator, portion: Any) -> Iterator[list[Row]]:
        """Yield the rows of a portion of the planner, in lists of bounded size."""


class OrderFeed(Feed):
    """Sends the portions of ``feed`` as orders to the subtasks that read them themselves (``Plan.read_by``)."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self.splits_folder = feed.splits_folder

    def planner(self, operator: Operator, clock: Clock) -> Planner:
        return self._feed.planner(operator, clock)

    def rows(self, job: WorkerJob, operator: Operator, portion: Any) -> Iterator[list[Row]]:
        slot = job.layout.slots[job.plan.read_by[operator.id], portion.subtask]
        yield [(slot, ORDER_CHANNEL, 0, to_bytes(ReadOrder(operator.id, portion)))]


def feed_for(plan: Plan, operator_id: int, feed: Feed) -> Feed:
    """Return the feed for the source ``operator_id``: ``feed`` itself, or orders to read its portions."""
    return OrderFeed(feed) if operator_id in plan.read_by else feed


@dataclass(frozen=True)
class FramePartition(InputPartition):
    """A portion for a task, with its rows if they were created on the driver's host."""

    portion: Any
    rows: tuple[Row, ...] | None = None


def _in_few_tasks(rows: Iterable[Row]) -> list[FramePartition]:
    """Divide rows among as few tasks as possible. Their order among subtasks has no meaning."""
    partitions: list[FramePartition] = []
    taken: list[Row] = []
    size = 0
    for row in rows:
        if size >= _TASK_BYTES and row[0] != REPORT_SLOT:  # a report needs no task of its own
            partitions.append(FramePartition(None, tuple(taken)))
            taken, size = [], 0
        taken.append(row)
        size += len(row[3])
    return [*partitions, FramePartition(None, tuple(taken))] if taken else partitions


class FrameStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Adapts a feed and its planner to Spark's interface."""

    def __init__(
        self,
        feed: Feed,
        clock: Clock,
        pickled: bytes,
        packed: bytes,
        operator_id: int,
        start: SparkOffset | None,
        *,
        only_available: bool = False,
    ) -> None:
        """Create the reader.

        Args:
            feed: The input.
            clock: The clock of the planner.
            pickled: ``feed`` and ``clock`` for the tasks.
            packed: The job for the workers.
            operator_id: The source.
            start: The offset from a savepoint at which a new job begins. None: the beginning of the source.
            only_available: The job ends at the first check without new input. Default: only if Spark announces it.
        """
        self._feed = feed
        self._pickled = pickled
        self._packed = packed
        self._operator_id = operator_id
        self._planner = feed.planner(self._operator(), clock)
        self._split_file = None if feed.splits_folder is None else SplitFile(feed.splits_folder, operator_id)
        self._initial = self._planner.initial() if start is None else start
        self._only_available = only_available
        self._last = self._initial
        self._run_start: SparkOffset | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks need the feed only if they create the rows.
        pickled = b"" if self._feed.made_on_driver else self._pickled
        return {"_pickled": pickled, "_packed": self._packed, "_operator_id": self._operator_id}

    def initialOffset(self) -> SparkOffset:  # noqa: N802 - Spark's name
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._only_available = True

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: SparkOffset | None = None, limit: ReadLimit | None = None
    ) -> SparkOffset:
        # The planner applies the limits. Spark 4.1 passes no start. At a restart it asks for partitions first.
        with marked_failures():
            begin = self._last if start is None else start
            self._last = there = self._planner.latest(begin, only_available=self._only_available)
            if self._split_file is not None:
                self._split_file.write(self._planner.splits())
            return there

    def partitions(self, start: SparkOffset, end: SparkOffset) -> Sequence[InputPartition]:
        self._last = end
        if start == end:  # nothing to plan: Spark 4.1 says where the last run has ended
            return []
        portions = self._planner.portions(start, end)
        if not self._feed.made_on_driver:
            return [*map(FramePartition, portions), *_in_few_tasks(self._empty_frames(start))]
        rows = [row for portion in portions for row in self._rows_of(portion)]
        return _in_few_tasks([*rows, *self._empty_frames(start)])

    def commit(self, end: SparkOffset) -> None:
        with marked_failures():
            self._planner.commit(end)

    def stop(self) -> None:
        self._planner.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FramePartition)
        if partition.rows is not None:
            if partition.rows:
                yield to_arrow(partition.rows)
            return
        feed, _ = from_bytes(self._pickled)
        job = load_job(self._packed)
        limit = callback_limit(job.plan.callback_timeout_ms, may_exit=True)
        with marked_failures(), worker_resources(), patient_collector(), limit:
            for rows in feed.rows(job, self._operator(), partition.portion):
                yield to_arrow(rows)

    def _empty_frames(self, start: SparkOffset) -> list[Row]:
        """Return an empty frame for each subtask when a job restarts, so that all subtasks report their progress."""
        if self._run_start is None:
            self._run_start = start
        if start != self._run_start or start == self._initial or not self._feed.made_of_frames:
            return []
        job = load_job(self._packed)
        encoder = FrameEncoder(job.plan, job.layout, job.codec())
        for operator, subtask in job.layout.slots:
            if operator in job.plan.chains:
                encoder.emit(Frame(operator, subtask, 0, NO_RECORDS, []))
        return encoder.take()

    def _rows_of(self, portion: Any) -> list[Row]:
        with marked_failures():
            return list(itertools.chain(*self._feed.rows(load_job(self._packed), self._operator(), portion)))

    def _operator(self) -> Operator:
        return load_job(self._packed).plan.operators[self._operator_id]
