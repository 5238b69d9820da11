"""Plans where the micro-batches of an indexed source end, on every runtime.

Offsets are ``{"position": index of the next record}``, with ``"ended": true`` once the end was sent, and ``"limit"`` if
micro-batches have a target duration (``AdaptiveLimit.multiple``). The position is -1 before anything was sent.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeAlias

from dsv2.base.clock import Clock
from dsv2.graph import Operator
from dsv2.jobs.progress import SplitProgress
from dsv2.runtime.sources.adaptive_limit import AdaptiveLimit
from dsv2.runtime.sources.continuation import check_content
from dsv2.runtime.sources.offsets import has_ended
from dsv2.runtime.sources.split_progress import indexed_split
from dsv2.sources import Halt, ReadSchedule
from dsv2.sources.source import LEAST_PER_BATCH

DEFAULT_RECORDS_PER_BATCH: Final = 1_000_000
_BEFORE_START: Final = -1

IndexedOffset: TypeAlias = dict[str, Any]


class CountedInput(Protocol):
    """The number of items of a source and its limits, see ``IndexedSource``."""

    count: int | None
    records_per_batch: int | None
    records_per_second: float | None


class IndexedPlanner:
    """Plans the micro-batches of one run. The rate of the source counts from the first request.

    Args:
        source: The source.
        operator: Its operator.
        clock: Measures the rate and the durations of micro-batches.
        schedule: The halts of the source. None: there are none.
        target_batch_ms: The target duration of a micro-batch. None: only the limits of the source apply.
        most: The maximum number of records in a micro-batch of a source without its own limit.
        ends_apart: Whether a micro-batch that is full does not end the source, even if it reads the last record.
        limited: Whether there are limits. Otherwise one micro-batch reads the whole source, which must be bounded.
        unit: What is counted, for error messages.
    """

    def __init__(
        self,
        source: CountedInput,
        operator: Operator,
        clock: Clock,
        schedule: ReadSchedule | None,
        target_batch_ms: int | None,
        *,
        most: int = DEFAULT_RECORDS_PER_BATCH,
        ends_apart: bool = False,
        limited: bool = True,
        unit: str = "records",
    ) -> None:
        self._source = source
        self._operator = operator
        self._clock = clock
        self._schedule = schedule
        self._adaptive = None if target_batch_ms is None else AdaptiveLimit(target_batch_ms, clock)
        self._most = most
        self._ends_apart = ends_apart
        self._limited = limited
        self._unit = unit
        self._rate_since: tuple[int, int] | None = None  # time in ms and position at the first request
        self._goal: int | None = None  # how much of an unbounded source was available at the first request
        self._there = self.initial()
        self._has_moved = False
        self._moved_ms: int | None = None

    @staticmethod
    def initial() -> IndexedOffset:
        """Return the offset at which a new job begins."""
        return {"position": _BEFORE_START}

    def begin(self, start: IndexedOffset) -> None:
        """Begin the run at ``start``. Only the first call has an effect."""
        if self._schedule is not None:
            self._schedule.begin(start["position"])

    def halt(self, start: IndexedOffset, now_ms: int) -> Halt | None:
        """Return the halt at ``start``; None if there is none or it is over. Raises ``JobError`` if the job crashes."""
        if self._schedule is None or has_ended(start):
            return None
        self.begin(start)
        return self._schedule.halt(index_of(start), now_ms)

    def next(self, start: IndexedOffset, records: int | None = None, *, only_available: bool = False) -> IndexedOffset:
        """Return where the micro-batch after ``start`` ends; ``start`` if there is nothing to read.

        Args:
            start: Where it begins.
            records: The maximum number of records. None: only the limits of the source apply. 0: the source halts.
            only_available: Whether an unbounded source is read only as far as it was available at the first request.

        Raises:
            IncompatibleCheckpointError: The source does not have the content that was read before.
        """
        check_content(self._operator, start, self._source.count, self._unit)
        self._there = start if has_ended(start) else self._after(start, records, only_available)
        self._has_moved = index_of(self._there) > index_of(start)
        return self._there

    def is_exhausted(self, offset: IndexedOffset) -> bool:
        """Return whether everything that was available at the first request has been read."""
        return has_ended(offset) or (self._goal is not None and index_of(offset) >= self._goal)

    def splits(self, now_ms: int) -> tuple[SplitProgress, ...]:
        """Return the progress of the source, which is one split, after a micro-batch was planned at ``now_ms``."""
        if self._has_moved:
            self._has_moved, self._moved_ms = False, now_ms
        position, ended = index_of(self._there), has_ended(self._there)
        available = self._available(position)
        return (indexed_split(position, self._source.count, available, ended=ended, moved_at_ms=self._moved_ms),)

    def _after(self, start: IndexedOffset, records: int | None, only_available: bool) -> IndexedOffset:
        position, count = index_of(start), self._source.count
        if not self._limited and count is not None:
            return self._offset(start, count, ended=True)
        if self._adaptive is not None:
            self._adaptive.resume(start.get("limit", 1.0))
            self._adaptive.measure()
        if records == 0:
            return self._offset(start, position)
        available, most = self._available(position), self._source.records_per_batch
        if only_available and count is None and self._goal is None:
            self._goal = position + (most or DEFAULT_RECORDS_PER_BATCH) if available is None else available
        halt = None if self._schedule is None else self._schedule.next_halt(position)
        sizes = [most or self._most, records, None if self._adaptive is None else self._adaptive.of(LEAST_PER_BATCH)]
        full = position + min(size for size in sizes if size is not None)
        stop = max(min(stop for stop in (full, count, available, self._goal, halt) if stop is not None), position)
        if self._adaptive is not None and stop > position:
            self._adaptive.begin(stop - position, LEAST_PER_BATCH)
        return self._offset(start, stop, ended=stop == count and not (self._ends_apart and stop == full))

    def _offset(self, start: IndexedOffset, position: int, *, ended: bool = False) -> IndexedOffset:
        if position == start["position"] and not ended:
            return start  # a new limit alone is no reason for a micro-batch
        end: IndexedOffset = {"position": position, "ended": True} if ended else {"position": position}
        return end if self._adaptive is None else {**end, "limit": self._adaptive.multiple}

    def _available(self, position: int) -> int | None:
        """Return the position up to which the rate allows to read now; None if there is no rate."""
        rate = self._source.records_per_second
        if rate is None:
            return None
        if self._rate_since is None:
            self._rate_since = (self._clock.now_ms(), position)
        began, base = self._rate_since
        return base + int((self._clock.now_ms() - began) * rate / 1000)


def index_of(offset: IndexedOffset) -> int:
    """Return the index of the next record."""
    return max(int(offset["position"]), 0)
