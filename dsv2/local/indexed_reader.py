"""The subtasks of an indexed source in a local run, and the positions at which they halt and resume."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

from dsv2.clock import Clock
from dsv2.context import RuntimeExecutionMode
from dsv2.errors import SerializationError
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, Plan
from dsv2.local.mutation import MutationCheck
from dsv2.local.reading import Reading
from dsv2.progress import SplitProgress
from dsv2.runtime.exchange.frames import EmitFrame
from dsv2.runtime.sources.adaptive_limit import AdaptiveLimit
from dsv2.runtime.sources.continuation import check_content
from dsv2.runtime.sources.indexed_pace import DEFAULT_RECORDS_PER_BATCH, IndexedPace
from dsv2.runtime.sources.indexed_reading import IndexedReading
from dsv2.runtime.sources.ranges import indexed_range
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.sources.split_progress import indexed_split
from dsv2.savepoint.metadata import SourcePosition
from dsv2.sources import Halt, IndexedSource, ReadSchedule
from dsv2.sources.source import LEAST_PER_BATCH

__all__ = ("IndexedReader", "IndexedSourceRun", "own_copy")

_LARGEST_READ_BITS = 14
_MOST_OF_UNBOUNDED = 10_000  # records in a micro-batch, unless the source has a limit of its own
_BEFORE_START = -1


class IndexedSourceRun:
    """The readers of one source, and the positions at which they halt.

    All readers end in the same micro-batch, as on Spark, so that one position describes the source.
    """

    def __init__(
        self,
        plan: Plan,
        operator: Operator,
        clock: Clock,
        reading: Reading,
        receive: EmitFrame,
        mutation: MutationCheck | None,
        start: SourcePosition | None = None,
    ) -> None:
        """Create the readers. ``start``: Where the source continues. None: at its beginning."""
        assert isinstance(operator.body, IndexedSource)
        self._source = operator.body
        self._operator = operator
        self.readers = [
            IndexedReader(plan, operator, index, receive, mutation) for index in range(operator.parallelism)
        ]
        self._batch_start = 0  # where the micro-batch begins
        begin = _BEFORE_START if start is None else start.offset["position"]
        if start is not None:
            check_content(operator, start.offset, self._source.count)
            for reader in self.readers:
                reader.resume(max(begin, 0), ended=bool(start.offset.get("ended")))
        self._is_streaming = plan.mode is RuntimeExecutionMode.STREAMING
        schedule = self._source.schedule(f"{operator}, defined at {operator.location}") if self._is_streaming else None
        self._halts = None if schedule is None else SourceHalts(schedule, self.readers, begin)
        self._pace = IndexedPace(self._source.records_per_second, clock)
        self._adaptive = None if reading.target_batch_ms is None else AdaptiveLimit(reading.target_batch_ms, clock)
        if self._adaptive is not None and start is not None:
            self._adaptive.resume(start.offset.get("limit", 1.0))
        self._moved_ms: int | None = None
        self._goal = self._available_at_start() if reading.only_available and not self._source.bounded else None

    @property
    def position(self) -> SourcePosition:
        """Where the source continues after the last micro-batch."""
        ended = all(reader.ended for reader in self.readers)
        offset: dict[str, Any] = {"position": self._records_read}
        if ended:
            offset["ended"] = True
        if self._adaptive is not None:
            offset["limit"] = self._adaptive.multiple
        return SourcePosition(offset)

    @property
    def ended(self) -> bool:
        """Whether all readers have ended."""
        return all(reader.ended for reader in self.readers)

    @property
    def is_exhausted(self) -> bool:
        """Whether everything that was available at the start has been read."""
        return self.ended or (self._goal is not None and self._records_read >= self._goal)

    @property
    def is_paced(self) -> bool:
        """Whether the source has a rate, so that further records become available in time."""
        return self._source.records_per_second is not None

    def begin_batch(self, records: int | None) -> bool:
        """Begin a micro-batch, and return whether it reads anything.

        Args:
            records: The maximum number of records per reader. None: only the limits of the source apply.
        """
        self._batch_start = self._records_read
        stop = self._stop(records)
        count = self._source.count
        is_last = stop is None or (count is not None and stop > count)
        for reader in self.readers:
            reader.begin_batch(stop, is_last=is_last)
        if self._adaptive is not None and stop is not None:
            size = min(stop, stop if count is None else count) - self._records_read
            if size > 0:
                self._adaptive.begin(size, LEAST_PER_BATCH)
        return any(reader.can_read for reader in self.readers)

    def _stop(self, records: int | None) -> int | None:
        """The position before which a micro-batch ends; None if it may read everything."""
        read = self._records_read
        limits = [None if records is None else read + records * len(self.readers)]
        if self._is_streaming and records != 0:
            most = self._source.records_per_batch
            if most is None and not self._source.bounded:
                most = _MOST_OF_UNBOUNDED
            limits += [None if most is None else read + most, self._pace.available(read), self._goal]
            if self._adaptive is not None:
                self._adaptive.measure()
                limits.append(read + self._adaptive.of(LEAST_PER_BATCH))
        return min((limit for limit in limits if limit is not None), default=None)

    def _available_at_start(self) -> int:
        read = self._records_read
        available = self._pace.available(read)
        most = self._source.records_per_batch or DEFAULT_RECORDS_PER_BATCH
        return read + most if available is None else available

    def splits(self, now_ms: int) -> tuple[SplitProgress, ...]:
        """Return the progress of the source, which is one split, at ``now_ms``."""
        if self._records_read > self._batch_start:
            self._moved_ms = now_ms
        available = self._pace.available(self._batch_start)
        return (
            indexed_split(
                self._records_read, self._source.count, available, ended=self.ended, moved_at_ms=self._moved_ms
            ),
        )

    def ranges_read(self) -> list[str]:
        """Describe what the last micro-batch has read."""
        return indexed_range(self._operator, self._batch_start, self._records_read)

    def halt(self, now_ms: int) -> Halt | None:
        """Return the halt at which all readers wait; None if there is none or it is over."""
        return None if self._halts is None else self._halts.halt(now_ms)

    @property
    def _records_read(self) -> int:
        return sum(reader.position for reader in self.readers)


class IndexedReader:
    """One subtask of an indexed source."""

    def __init__(
        self, plan: Plan, operator: Operator, index: int, receive: EmitFrame, mutation: MutationCheck | None
    ) -> None:
        assert isinstance(operator.body, IndexedSource)
        self._source = operator.body
        self._operator = operator
        self._index = index
        functions = {chained.id: own_copy(chained) for chained in plan.chained_to_sources}
        watch = None if mutation is None else mutation.remember
        self.task = SourceTask(plan, operator, index, receive, functions, watch)
        self._reading = IndexedReading(operator.body, operator, index, self.task)
        self.position = 0  # records of this subtask read so far
        self.ended = False
        self._halt_position: int | None = None  # the position at which it waits for the other readers
        self._limit: int | None = None  # the position at which the micro-batch ends
        self._is_last = False  # whether the reader ends with the micro-batch

    @property
    def waits(self) -> bool:
        """Whether all records before the next halt have been read."""
        return self.position == self._halt_position

    def resume(self, position: int, *, ended: bool) -> None:
        """Continue a source of which the first ``position`` records have been read."""
        self.position = self._own(position)
        self.ended = ended

    def wait_at(self, index: int | None) -> None:
        """Do not read the record at ``index`` of the source or any later record."""
        self._halt_position = None if index is None else self._own(index)

    def begin_batch(self, stop: int | None, *, is_last: bool) -> None:
        """Begin a micro-batch that ends before record ``stop`` of the source (None: with its last record).

        ``is_last``: Whether it reaches the end of the source, unless the readers halt before that.
        """
        limits = [self._halt_position, None if stop is None else self._own(stop)]
        self._limit = min((limit for limit in limits if limit is not None), default=None)
        self._is_last = is_last and self._halt_position is None

    @property
    def can_read(self) -> bool:
        """Whether this micro-batch has further records, or the end of input."""
        return not self.ended and (self._is_last or self._limit is None or self.position < self._limit)

    def read(self, choice: random.Random) -> None:
        """Read a random number of records, up to the end of the micro-batch."""
        wanted = choice.randint(1, 1 << choice.randrange(_LARGEST_READ_BITS))  # small reads as often as large ones
        if self._limit is not None:
            wanted = min(wanted, self._limit - self.position)
        step, count = self._operator.parallelism, self._source.count
        first = self._index + self.position * step
        stop = first + wanted * step
        indices = range(first, stop if count is None else min(stop, count), step)
        self.task.seek(self.position)
        self._reading.send(indices)
        self.position += len(indices)
        if self._is_last and count is not None and self.position == self._own(count):
            self.ended = True
            self.task.end()
        self.task.flush()

    def _own(self, position: int) -> int:
        """The number of records before ``position`` of the source that this subtask reads."""
        return len(range(self._index, position, self._operator.parallelism))


class SourceHalts:
    """The halts of one source."""

    def __init__(self, schedule: ReadSchedule, readers: Sequence[IndexedReader], position: int) -> None:
        self._schedule = schedule
        self._readers = readers
        self._schedule.begin(position)
        self._wait_for_next(position)

    def halt(self, now_ms: int) -> Halt | None:
        """Return the halt at which all readers wait; None if there is none or it is over."""
        if self._index is None or not all(reader.waits for reader in self._readers):
            return None
        halt = self._schedule.halt(self._index, now_ms)
        if halt is None:
            self._wait_for_next(self._index)
        return halt

    def _wait_for_next(self, position: int) -> None:
        self._index = self._schedule.next_halt(position)
        for reader in self._readers:
            reader.wait_at(self._index)


def own_copy(operator: Operator) -> ProcessFunction:
    """Copy the function of ``operator`` for a subtask. Raises ``SerializationError`` if it cannot be copied."""
    try:
        return copy.deepcopy(operator.function)
    except Exception as error:
        raise SerializationError(
            f"The function of {operator}, defined at {operator.location}, cannot be copied for its subtasks: {error}."
        ) from error
