"""Sources in a local run: what plans their micro-batches, and their readers."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from dsv2.base.clock import Clock
from dsv2.checkpoint.record import SourcePosition
from dsv2.errors import SerializationError
from dsv2.functions import ProcessFunction
from dsv2.graph import Operator, Plan
from dsv2.jobs.progress import SplitProgress
from dsv2.local.mutation import MutationCheck
from dsv2.model.context import RuntimeExecutionMode
from dsv2.runtime.exchange.frames import EmitFrame
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.sources.adaptive_limit import AdaptiveLimit
from dsv2.runtime.sources.alignment import AlignmentBoard
from dsv2.runtime.sources.continuation import check_content
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.indexed_planner import DEFAULT_RECORDS_PER_BATCH, IndexedPlanner, has_ended, index_of
from dsv2.runtime.sources.indexed_reading import IndexedReading
from dsv2.runtime.sources.offsets import BEFORE_START, ReaderOrder, Report, SourceOffset, orders
from dsv2.runtime.sources.ranges import ranges_read
from dsv2.runtime.sources.source_task import SourceTask
from dsv2.runtime.sources.split_progress import event_times, with_event_times
from dsv2.runtime.sources.split_reading import SplitReading
from dsv2.sources import Halt, IndexedSource, Source


@dataclass(frozen=True, slots=True)
class Reading:
    """Settings of a run for the reading of sources.

    Attributes:
        only_available: Whether unbounded sources are read only as far as they were available at the start.
        target_batch_ms: The target duration of a micro-batch. None: it has none.
    """

    only_available: bool = False
    target_batch_ms: int | None = None


_LARGEST_READ_BITS = 14
_MOST_OF_UNBOUNDED = 10_000  # records in a micro-batch, unless the source has a limit of its own


class IndexedSourceRun:
    """The planner and the readers of one source.

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
        self._only_available = reading.only_available
        is_streaming = plan.mode is RuntimeExecutionMode.STREAMING
        self._planner = IndexedPlanner(
            self._source,
            operator,
            clock,
            self._source.schedule(f"{operator}, defined at {operator.location}") if is_streaming else None,
            reading.target_batch_ms,
            most=DEFAULT_RECORDS_PER_BATCH if self._source.bounded else _MOST_OF_UNBOUNDED,
            ends_apart=True,
            limited=is_streaming,
        )
        self._offset = self._planner.initial() if start is None else start.offset
        self._batch_start = self._offset
        if start is not None:
            check_content(operator, self._offset, self._source.count)
            for reader in self.readers:
                reader.resume(index_of(self._offset), ended=has_ended(self._offset))

    @property
    def position(self) -> SourcePosition:
        """The position at which the source continues after the last micro-batch."""
        return SourcePosition(self._offset)

    @property
    def ended(self) -> bool:
        """True if all readers have ended."""
        return all(reader.ended for reader in self.readers)

    @property
    def is_exhausted(self) -> bool:
        """True if everything that was available at the start has been read."""
        return self._planner.is_exhausted(self._offset)

    @property
    def is_paced(self) -> bool:
        """True if the source has a rate, so that further records become available in time."""
        return self._source.records_per_second is not None

    def begin_batch(self, records: int | None) -> bool:
        """Begin a micro-batch, and return whether it reads anything.

        Args:
            records: The maximum number of records per reader. None: only the limits of the source apply.
        """
        self._batch_start = self._offset
        most = None if records is None else records * len(self.readers)
        self._offset = self._planner.next(self._offset, most, only_available=self._only_available)
        for reader in self.readers:
            reader.begin_batch(index_of(self._offset), is_last=has_ended(self._offset))
        return any(reader.can_read for reader in self.readers)

    def splits(self, now_ms: int) -> tuple[SplitProgress, ...]:
        """Return the progress of the source, which is one split, at ``now_ms``."""
        return self._planner.splits(now_ms)

    def ranges_read(self) -> list[str]:
        """Describe what the last micro-batch has read."""
        return ranges_read(self._operator, self._batch_start, self._offset)

    def halt(self, now_ms: int) -> Halt | None:
        """Return the halt of the source; None if there is none or it is over."""
        return self._planner.halt(self._offset, now_ms)


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
        self._reading = IndexedReading(operator.body, plan, operator, index, self.task)
        self.position = 0  # records of this subtask read so far
        self.ended = False
        self._limit = 0  # the position at which the micro-batch ends
        self._is_last = False  # whether the reader ends with the micro-batch

    def resume(self, position: int, *, ended: bool) -> None:
        """Continue a source after its first ``position`` records."""
        self.position = self._own(position)
        self.ended = ended

    def begin_batch(self, stop: int, *, is_last: bool) -> None:
        """Begin a micro-batch that ends before record ``stop`` of the source. ``is_last``: That is its end."""
        self._limit = self._own(stop)
        self._is_last = is_last

    @property
    def can_read(self) -> bool:
        """True if this micro-batch has further records, or the end of input."""
        return not self.ended and (self._is_last or self.position < self._limit)

    def read(self, choice: random.Random) -> None:
        """Read a random number of records, up to the end of the micro-batch."""
        wanted = choice.randint(1, 1 << choice.randrange(_LARGEST_READ_BITS))  # small reads as often as large ones
        wanted = min(wanted, self._limit - self.position)
        step = self._operator.parallelism
        first = self._index + self.position * step
        self.task.seek(self.position)
        self._reading.send(range(first, first + wanted * step, step))
        self.position += wanted
        if self._is_last and self.position == self._limit:
            self.ended = True
            self.task.end()
        self.task.flush()

    def _own(self, position: int) -> int:
        """The number of records before ``position`` of the source that this subtask reads."""
        return len(range(self._index, position, self._operator.parallelism))


def own_copy(operator: Operator) -> ProcessFunction:
    """Copy the function of ``operator`` for a subtask. Raises ``SerializationError`` if it cannot be copied."""
    try:
        return copy.deepcopy(operator.function)
    except Exception as error:
        raise SerializationError(
            f"The function of {operator}, defined at {operator.location}, cannot be copied for its subtasks: {error}."
        ) from error


class SplitSourceRun:
    """The coordinator and the readers of one source."""

    def __init__(
        self,
        plan: Plan,
        operator: Operator,
        clock: Clock,
        reading: Reading,
        board: AlignmentBoard,
        receive: EmitFrame,
        mutation: MutationCheck | None,
        codec: Codec,
        start: SourcePosition | None = None,
    ) -> None:
        """Create the coordinator and the readers. ``start``: Where the source continues. None: at its beginning."""
        assert isinstance(operator.body, Source)
        self._plan = plan
        self._board = board
        self._operator = operator
        self._source: Source[Any, Any, Any] = operator.body
        self._clock = clock
        self._offset: SourceOffset = BEFORE_START if start is None else start.offset
        self._reports: list[Report] = [] if start is None else start.reports
        self._only_available = reading.only_available
        self._adaptive = None if reading.target_batch_ms is None else AdaptiveLimit(reading.target_batch_ms, clock)
        self._coordinator = self._new_coordinator()
        self.readers = [
            SplitReader(plan, operator, index, receive, mutation, clock, codec) for index in range(operator.parallelism)
        ]
        self.waits = False
        """True if the last micro-batch had nothing to read."""

    @property
    def position(self) -> SourcePosition:
        """The position at which the source continues after the last micro-batch."""
        return SourcePosition(self._offset, json.loads(json.dumps(self._latest_reports())))  # tuples as lists

    @property
    def is_exhausted(self) -> bool:
        """True if all data that was available when the job began has been read."""
        return self.waits and not self._coordinator.has_more_for_certain

    @property
    def ended(self) -> bool:
        """True if all readers have ended."""
        return all(reader.ended for reader in self.readers)

    def begin_batch(self, records: int | None) -> bool:
        """Plan a micro-batch, send the orders to the readers, and return whether there are any.

        Args:
            records: The maximum number of records per reader. None: only the limits of the source apply.
        """
        limit = None if records is None else records * self._operator.parallelism
        refresh = self._source.bounded or not self._only_available
        offset = self._coordinator.next(self._offset, limit, refresh=refresh, reports=self._latest_reports())
        self.waits = offset == self._offset
        if not self.waits:
            self._offset = offset
            for order in orders(offset, self._source.split_serializer):
                self.readers[order.subtask].follow(order)
        for reader, state in zip(self.readers, self._offset.get("readers", ()), strict=False):
            if state["ended"] is not None and not reader.can_read:
                reader.ended = True  # in a micro-batch before the savepoint
        return not self.waits

    def _latest_reports(self) -> list[Report]:
        reports = [report for reader in self.readers if (report := reader.report()) is not None]
        return [*self._reports, *reports]  # those of other micro-batches do not count

    def splits(self, now_ms: int) -> tuple[SplitProgress, ...]:
        """Return the progress of the splits."""
        return with_event_times(self._coordinator.splits(), event_times(self._latest_reports()))

    @property
    def is_paced(self) -> bool:
        """True if it may soon have more: paused splits can resume at the next update of their alignment group."""
        return self._coordinator.resumes_soon

    @property
    def is_aligned(self) -> bool:
        """True if splits may be paused and resumed between two micro-batches."""
        return self._coordinator.is_aligned

    def ranges_read(self) -> list[str]:
        """Describe what the last micro-batch has read."""
        return [] if self.waits else ranges_read(self._operator, None, self._offset)

    def commit(self) -> None:
        """Commit the micro-batch."""
        self._coordinator.commit(self._offset)

    def restart(self) -> None:
        """Replace the enumerator with a new one, restored from the offset.

        Not that of an unbounded source, which would look for new data each time, instead of at its own interval.
        """
        if self._source.bounded:
            self.close()
            self._coordinator = self._new_coordinator()

    def close(self) -> None:
        """Close the enumerator."""
        self._coordinator.close()

    def _new_coordinator(self) -> SourceCoordinator:
        if self._plan.mode is RuntimeExecutionMode.BATCH:
            return SourceCoordinator(self._source, self._operator, self._clock, limited=False)
        return SourceCoordinator(self._source, self._operator, self._clock, self._board, adaptive=self._adaptive)


class SplitReader:
    """One subtask of a source with splits."""

    def __init__(
        self,
        plan: Plan,
        operator: Operator,
        index: int,
        receive: EmitFrame,
        mutation: MutationCheck | None,
        clock: Clock,
        codec: Codec,
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._codec = codec
        self._operator = operator
        functions = {chained.id: own_copy(chained) for chained in plan.chained_to_sources}
        watch = None if mutation is None else mutation.remember
        self.task = SourceTask(plan, operator, index, receive, functions, watch)
        self._reading: SplitReading | None = None
        self._runs: Iterator[int] = iter(())
        self._ends = False
        self.can_read = False
        """True if this micro-batch has further records, or the end of input."""
        self.ended = False

    def follow(self, order: ReaderOrder) -> None:
        """Begin to execute ``order``."""
        assert isinstance(self._operator.body, Source)
        self._reading = SplitReading(
            self._operator.body, self._plan, self._operator, order, self.task, lambda: self._codec, self._clock
        )
        self._runs = self._reading.run()
        self._ends = order.last
        self.can_read = True

    def read(self, choice: random.Random) -> None:
        """Read the next batch of records, whose size the source determines."""
        if next(self._runs, None) is None:
            self.can_read = False
            self.ended = self._ends
        self.task.flush()

    def report(self) -> Report | None:
        """Return the report on the last micro-batch, if there was one."""
        return None if self._reading is None else self._reading.report()
