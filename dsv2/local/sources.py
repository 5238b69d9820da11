"""The planners of the sources in a local run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dsv2.base.clock import Clock
from dsv2.checkpoint.record import SourcePosition
from dsv2.graph import Operator, Plan
from dsv2.jobs.progress import SplitProgress
from dsv2.local.readers import IndexedReader, SplitReader
from dsv2.local.workers.readers import RemoteReader
from dsv2.model.context import RuntimeExecutionMode
from dsv2.runtime.sources.adaptive_limit import AdaptiveLimit
from dsv2.runtime.sources.alignment import AlignmentBoard
from dsv2.runtime.sources.continuation import check_content
from dsv2.runtime.sources.coordinator import SourceCoordinator
from dsv2.runtime.sources.indexed_planner import DEFAULT_RECORDS_PER_BATCH, IndexedPlanner, index_of
from dsv2.runtime.sources.offsets import BEFORE_START, Report, SourceOffset, has_ended, orders
from dsv2.runtime.sources.ranges import ranges_read
from dsv2.runtime.sources.split_progress import event_times, with_event_times
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


_MOST_OF_UNBOUNDED = 10_000  # records in a micro-batch, unless the source has a limit of its own


class IndexedSourceRun:
    """The planner of one source, and its readers.

    All readers end in the same micro-batch, as on Spark, so that one position describes the source.
    """

    def __init__(
        self,
        plan: Plan,
        operator: Operator,
        clock: Clock,
        reading: Reading,
        readers: Sequence[IndexedReader | RemoteReader],
        start: SourcePosition | None = None,
    ) -> None:
        """Create the planner. ``start``: Where the source continues. None: at its beginning."""
        assert isinstance(operator.body, IndexedSource)
        self._source = operator.body
        self._operator = operator
        self._readers = readers
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
            for reader in self._readers:
                reader.resume(index_of(self._offset), ended=has_ended(self._offset))

    @property
    def position(self) -> SourcePosition:
        """The position at which the source continues after the last micro-batch."""
        return SourcePosition(self._offset)

    @property
    def ended(self) -> bool:
        """True if all readers have ended, after a micro-batch."""
        return has_ended(self._offset)

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
        most = None if records is None else records * len(self._readers)
        self._offset = self._planner.next(self._offset, most, only_available=self._only_available)
        is_last = has_ended(self._offset)
        for reader in self._readers:
            reader.begin_batch(index_of(self._offset), is_last=is_last)
        return (index_of(self._offset), is_last) != (index_of(self._batch_start), has_ended(self._batch_start))

    def splits(self, now_ms: int) -> tuple[SplitProgress, ...]:
        """Return the progress of the source, which is one split, at ``now_ms``."""
        return self._planner.splits(now_ms)

    def ranges_read(self) -> list[str]:
        """Describe what the last micro-batch has read."""
        return ranges_read(self._operator, self._batch_start, self._offset)

    def halt(self, now_ms: int) -> Halt | None:
        """Return the halt of the source; None if there is none or it is over."""
        return self._planner.halt(self._offset, now_ms)


class SplitSourceRun:
    """The coordinator of one source, and its readers."""

    def __init__(
        self,
        plan: Plan,
        operator: Operator,
        clock: Clock,
        reading: Reading,
        board: AlignmentBoard,
        readers: Sequence[SplitReader | RemoteReader],
        start: SourcePosition | None = None,
    ) -> None:
        """Create the coordinator. ``start``: Where the source continues. None: at its beginning."""
        assert isinstance(operator.body, Source)
        self._plan = plan
        self._board = board
        self._operator = operator
        self._source: Source[Any, Any, Any] = operator.body
        self._clock = clock
        self._offset: SourceOffset = BEFORE_START if start is None else start.offset
        self._first_reports: list[Report] = [] if start is None else start.reports
        self._reports = self._first_reports  # those of other micro-batches do not count
        self._only_available = reading.only_available
        self._adaptive = None if reading.target_batch_ms is None else AdaptiveLimit(reading.target_batch_ms, clock)
        self._coordinator = self._new_coordinator()
        self._readers = readers
        self.waits = False
        """True if the last micro-batch had nothing to read."""

    @property
    def position(self) -> SourcePosition:
        """The position at which the source continues after the last micro-batch."""
        return SourcePosition(self._offset, json.loads(json.dumps(self._reports)))  # tuples as lists

    @property
    def is_exhausted(self) -> bool:
        """True if all data that was available when the job began has been read."""
        return self.waits and not self._coordinator.has_more_for_certain

    @property
    def ended(self) -> bool:
        """True if all readers have ended, after a micro-batch."""
        return has_ended(self._offset)

    def begin_batch(self, records: int | None) -> bool:
        """Plan a micro-batch, send the orders to the readers, and return whether there are any.

        Args:
            records: The maximum number of records per reader. None: only the limits of the source apply.
        """
        limit = None if records is None else records * self._operator.parallelism
        refresh = self._source.bounded or not self._only_available
        offset = self._coordinator.next(self._offset, limit, refresh=refresh, reports=self._reports)
        self.waits = offset == self._offset
        if not self.waits:
            self._offset = offset
            for order in orders(offset, self._source.split_serializer):
                self._readers[order.subtask].follow(order)
        return not self.waits

    def note_reports(self, reports: Iterable[Report]) -> None:
        """Replace the reports of the readers of all sources on their last micro-batches in this run."""
        self._reports = [*self._first_reports, *(one for one in reports if one["source"] == self._operator.uid)]

    def splits(self, now_ms: int) -> tuple[SplitProgress, ...]:
        """Return the progress of the splits."""
        return with_event_times(self._coordinator.splits(), event_times(self._reports))

    @property
    def is_paced(self) -> bool:
        """True if it may soon have more: paused splits can resume at the next update of their alignment group."""
        return self._coordinator.resumes_soon

    def wait(self, timeout: timedelta) -> bool | None:
        """Wait until the source has something to read; see ``SplitEnumerator.wait``."""
        return self._coordinator.wait(timeout)

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
