"""The interval join: joins records with timestamps within bounds of each other (Flink ``IntervalJoinOperator``).

A record is buffered until event time excludes further partners. So the size of the state depends on the bounds, not on
how long the job runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Generic

from dsv2.base.type_variables import IN1, IN2, OUT, T
from dsv2.extension.event_time import EventTimeManager, TwoInputNonBroadcastEventTimeStreamProcessFunction
from dsv2.extension.join.buffer import BufferedRecord, JoinBuffer
from dsv2.extension.join.contents import BUFFERED_ROWS, MATCHED, RECORD, TIME
from dsv2.extension.join.functions import (
    JoinFunction,
    JoinProcessFunction,
    JoinType,
    LateRecord,
    PairTimes,
    TimedJoinFunction,
    join_timed,
    take_late,
    timestamp_of,
)
from dsv2.extension.join.result_timestamps import Stamping
from dsv2.model.context import Collector, PartitionedContext
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import (
    FailedCallbackError,
    FailedRecordError,
    KeyedBatchFunction,
    PaneFunction,
    PartitionAccess,
    ProcessOne,
    partition_access,
    refuse_returned,
)


@dataclass(frozen=True, slots=True)
class Side(Generic[T, OUT]):
    """One input of an interval join.

    Attributes:
        earliest: The lower bound of partner timestamps, in ms relative to the record.
        latest: The upper bound of partner timestamps, in ms relative to the record.
        emits_unmatched: Join a record that was never matched with None.
        removes_matched: Remove a record once it is matched.
        only_existence: Only the existence of a record matters, so the record itself is not stored.
        on_late: Called with late records. None: they are dropped and counted.
    """

    earliest: int
    latest: int
    emits_unmatched: bool
    removes_matched: bool
    only_existence: bool
    on_late: LateRecord[T, OUT] | None


class IntervalJoin(
    JoinProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction[IN1, IN2, OUT],
    KeyedBatchFunction,
    PaneFunction,
    Generic[IN1, IN2, OUT],
):
    """Base class of interval joins: lateness, buffering and eviction. Created by ``new_interval_join``.

    By the clock, the time of arrival is the timestamp of a record. Then the previous ms is over, and nothing is late.
    """

    _described = "An interval join"

    def __init__(
        self,
        function: JoinFunction[Any, Any, OUT],
        join_type: JoinType,
        left: Side[IN1, OUT],
        right: Side[IN2, OUT],
        *,
        by_clock: bool,
    ) -> None:
        super().__init__(function)
        self._type = join_type
        self._sides: tuple[Side[Any, OUT], Side[Any, OUT]] = left, right
        self._by_clock = by_clock
        self._time: EventTimeManager
        self._ctx: PartitionedContext[OUT] | None = None
        self._buffers: tuple[JoinBuffer, JoinBuffer]
        self._key: PartitionAccess
        self._stamping: Stamping[OUT]

    def _on_late(self) -> Collection[object]:
        return [side.on_late for side in self._sides]

    @property
    def state_layout(self) -> str:
        by_clock = " by the clock" if self._by_clock else ""
        return f"the records that wait for partners in {self._type.name} interval joins{by_clock}"

    @property
    def contents(self) -> str:
        return BUFFERED_ROWS

    @property
    def dsv2_waits_for_event_time(self) -> bool:
        return not self._by_clock

    def dsv2_uses_processing_timers(self) -> bool:
        return self._by_clock

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self._time = manager

    def process_record_from_first_input(
        self, record: IN1, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        self._process(record, 0, output, ctx)

    def process_record_from_second_input(
        self, record: IN2, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        self._process(record, 1, output, ctx)

    def process_keyed_batch(
        self, input_index: int, batch: RecordBatch[Any], select: Callable[[Any], Any], process_one: ProcessOne
    ) -> None:
        if self._ctx is None:  # the first record of the subtask initializes the join
            ((first, time),) = batch.slice(0, 1).pairs()
            process_one(first, time)
            batch = batch.slice(1)
        now, take = self._over(), self._take
        record: Any = None
        timestamp: Any = None
        pairs = zip(batch.records, repeat(now + 1), strict=False) if self._by_clock else batch.pairs()
        try:
            for record, timestamp in pairs:
                if timestamp > now:
                    take(input_index, record, timestamp, select(record), now)
                else:
                    process_one(record, timestamp)
        except FailedRecordError:
            raise
        except FailedCallbackError as error:
            raise FailedRecordError(record) from error
        except BaseException as error:
            process_one(record, timestamp)  # raises the specific error for a record that cannot be joined
            raise FailedRecordError(record) from error

    def on_pane_due(self, slot: int, *outputs_and_context: Any) -> None:
        output, ctx = outputs_and_context
        self._enter(output, ctx)
        number = slot % 2
        now = self._over()
        if self._by_clock and (pane := self._key.panes.get(slot)) is not None:
            now = max(now + 1, pane.deadline)  # at the end, it fires before its time
        after = max(self._sides[number].latest, 0)
        for time, key, row in self._buffers[number].due(slot, now):
            self._key.key = key
            if self._key.attempt is None:
                self._join_unmatched(number, row[RECORD], time, time + after)
            else:
                self._key.attempt(self._join_unmatched, number, row[RECORD], time, time + after)

    @abstractmethod
    def _join_partners(self, number: int, record: Any, timestamp: int, partners: list[BufferedRecord]) -> None:
        """Join ``record`` of side ``number`` with ``partners``, which is not empty."""

    def _process(self, record: Any, number: int, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        self._enter(output, ctx)
        now = self._over()
        timestamp = now + 1 if self._by_clock else timestamp_of(self._described, ctx)
        if timestamp <= now:
            name = ("on_late_left", "on_late_right")[number]
            take_late(name, self._sides[number].on_late, record, output, ctx)
        else:
            self._take(number, record, timestamp, ctx.state_manager.current_key, now)

    def _over(self) -> int:
        """The last ms for which no more records are expected."""
        if self._by_clock:
            assert self._ctx is not None
            return self._ctx.processing_time_manager.current_time() - 1
        return self._time.current_time()

    def _enter(self, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        """Initialize the join with the context of the first record or pane."""
        if ctx is self._ctx:
            return
        self._ctx = ctx
        self._key = partition_access(ctx.state_manager)
        self._stamping = Stamping(output, ctx)
        left, right = (
            JoinBuffer(
                self._key.panes,
                number,
                side.latest - side.earliest,
                side.latest + self._by_clock,  # others may arrive in the same ms
                by_event=not self._by_clock,
                emit_unmatched=side.emits_unmatched,
                distinct=side.only_existence,
            )
            for number, side in enumerate(self._sides)
        )
        self._buffers = left, right

    def _take(self, number: int, record: Any, timestamp: int, key: Any, now: int) -> None:
        side, other = self._sides[number], self._buffers[1 - number]
        partners = other.between(key, timestamp + side.earliest, timestamp + side.latest)
        if partners:
            self._key.key = key
            try:
                self._join_partners(number, record, timestamp, partners)
            except BaseException as error:
                raise FailedCallbackError(self._callback) from error
            if self._sides[1 - number].removes_matched:
                other.remove_matched(key, partners)
            if side.removes_matched:
                return
        if timestamp + side.latest > now:
            self._buffers[number].add(key, [timestamp, None if side.only_existence else record, bool(partners)])
        elif side.emits_unmatched and not partners:
            self._key.key = key
            self._join_unmatched(number, record, timestamp, timestamp)

    def _join_unmatched(self, number: int, record: Any, time: int, stamp: int) -> None:
        try:
            if number:
                self._join(None, record, PairTimes(None, time), stamp)
            else:
                self._join(record, None, PairTimes(time, None), stamp)
        except BaseException as error:
            raise FailedCallbackError(self._callback) from error

    def _join(self, left: Any, right: Any, times: PairTimes, stamp: int) -> None:
        """Call the join function. ``stamp`` is the timestamp of the results."""
        join_timed(self._function, left, right, times, self._stamping.at(stamp), self._stamping.ctx)


class PairJoin(IntervalJoin[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """INNER, LEFT, RIGHT and FULL joins. The results of a pair have the greater timestamp of the two."""

    def _join_partners(self, number: int, record: Any, timestamp: int, partners: list[BufferedRecord]) -> None:
        join_pair: Callable[..., object] = self._function.process_record
        stamping, ctx = self._stamping, self._stamping.ctx
        for row in partners:
            time, partner, _ = row
            collector = stamping.at(time if time > timestamp else timestamp)
            if number:
                returned = join_pair(partner, record, collector, ctx)
                if returned is not None:
                    refuse_returned(returned)
            else:
                returned = join_pair(record, partner, collector, ctx)
                if returned is not None:
                    refuse_returned(returned)
            row[MATCHED] = True


class TimedPairJoin(PairJoin[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """The same for functions that receive both timestamps."""

    def _join_partners(self, number: int, record: Any, timestamp: int, partners: list[BufferedRecord]) -> None:
        for row in partners:
            time, partner, _ = row
            stamp = max(time, timestamp)
            if number:
                self._join(partner, record, PairTimes(time, timestamp), stamp)
            else:
                self._join(record, partner, PairTimes(timestamp, time), stamp)
            row[MATCHED] = True


class ExistenceJoin(IntervalJoin[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """SEMI and ANTI joins. A left record is removed once it is matched."""

    def _join_partners(self, number: int, record: Any, timestamp: int, partners: list[BufferedRecord]) -> None:
        if number:
            for row in partners:
                row[MATCHED] = True
                self._matched(row[RECORD], row[TIME], max(timestamp, row[TIME]))
        else:
            self._matched(record, timestamp, max(timestamp, partners[0][TIME]))

    def _matched(self, left: Any, time: int, stamp: int) -> None:
        if self._type is JoinType.SEMI:
            self._join(left, None, PairTimes(time, None), stamp)


def new_interval_join(
    function: JoinFunction[Any, Any, OUT],
    join_type: JoinType,
    lower: int,
    upper: int,
    on_late_left: LateRecord[IN1, OUT] | None,
    on_late_right: LateRecord[IN2, OUT] | None,
    *,
    by_clock: bool,
) -> IntervalJoin[IN1, IN2, OUT]:
    """Create an interval join. ``lower`` and ``upper`` bound the right timestamp, in ms relative to the left one."""
    emits_left = join_type in (JoinType.LEFT, JoinType.FULL, JoinType.ANTI)
    emits_right = join_type in (JoinType.RIGHT, JoinType.FULL)
    only_existence = join_type in (JoinType.SEMI, JoinType.ANTI)
    left = Side(lower, upper, emits_left, only_existence, False, on_late_left)
    right = Side(-upper, -lower, emits_right, False, only_existence, on_late_right)
    of_pairs = TimedPairJoin if isinstance(function, TimedJoinFunction) else PairJoin
    kind = ExistenceJoin if only_existence else of_pairs
    return kind(function, join_type, left, right, by_clock=by_clock)
