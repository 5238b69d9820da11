"""The join on event time: records meet whose timestamps are not too far apart (Flink ``IntervalJoinOperator``).

A record waits for partners until event time says that no more can come. So the state holds what the bounds span,
however long the job runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from dsv2.context import Collector, PartitionedContext, RuntimeContext
from dsv2.errors import ContractError
from dsv2.extension.event_time import EventTimeManager, TwoInputNonBroadcastEventTimeStreamProcessFunction
from dsv2.extension.join.buffer import MATCHED, RECORD, TIME, BufferedRecord, JoinBuffer
from dsv2.extension.join.functions import JoinFunction, JoinType, LateRecord, require_keyed, take_late, written_by_user
from dsv2.extension.join.stamping import Stamping
from dsv2.record_batch import RecordBatch
from dsv2.spi import (
    FailedCallbackError,
    FailedRecordError,
    KeyedBatchFunction,
    PaneFunction,
    PartitionAccess,
    Position,
    WrappingFunction,
    check_returned,
    partition_access,
    refuse_returned,
)

__all__ = ("ExistenceJoin", "IntervalJoin", "PairJoin", "Side", "new_interval_join")

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Side(Generic[T, OUT]):
    """One input of an interval join.

    ``earliest``, ``latest``: where the partners of a record are, in ms from its own timestamp. ``pads``: a record that
    was never met is joined with None in the end. ``parts``: a record that was met goes. ``counts``: all that matters is
    whether there is one. ``on_late``: takes late records; None: they are dropped and counted.
    """

    earliest: int
    latest: int
    pads: bool
    parts: bool
    counts: bool
    on_late: LateRecord[T, OUT] | None


class IntervalJoin(
    WrappingFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction[IN1, IN2, OUT],
    KeyedBatchFunction,
    PaneFunction,
    Generic[IN1, IN2, OUT],
):
    """What the kinds of interval joins share: lateness, waiting, leaving. Made by ``new_interval_join``."""

    dsv2_remember_keys = False

    def __init__(
        self,
        function: JoinFunction[Any, Any, OUT],
        join_type: JoinType,
        left: Side[IN1, OUT],
        right: Side[IN2, OUT],
    ) -> None:
        self._function = function
        self._type = join_type
        self._sides: tuple[Side[Any, OUT], Side[Any, OUT]] = left, right
        self._time: EventTimeManager
        self._ctx: PartitionedContext[OUT] | None = None
        self._buffers: tuple[JoinBuffer, JoinBuffer]
        self._key: PartitionAccess
        self._stamping: Stamping[OUT]

    @property
    def wrapped(self) -> JoinFunction[Any, Any, OUT]:
        return self._function

    @property
    def written_by_user(self) -> Collection[object]:
        return written_by_user(self._function, *(side.on_late for side in self._sides))

    @property
    def state_layout(self) -> str:
        return f"the records that wait for partners in {self._type.name} interval joins"

    def dsv2_check_position(self, position: Position) -> None:
        require_keyed("An interval join", position)

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
        self,
        input_index: int,
        batch: RecordBatch[Any],
        select: Callable[[Any], Any],
        process_one: Callable[[Any, int | None], None],
    ) -> None:
        if self._ctx is None:  # the first record of the subtask gets the join ready
            ((first, time),) = batch.slice(0, 1).pairs()
            process_one(first, time)
            batch = batch.slice(1)
        now, take = self._time.current_time(), self._take
        record: Any = None
        timestamp: Any = None
        try:
            for record, timestamp in batch.pairs():
                if timestamp > now:
                    take(input_index, record, timestamp, select(record), now)
                else:
                    process_one(record, timestamp)
        except FailedRecordError:
            raise
        except FailedCallbackError as error:
            raise FailedRecordError(record) from error
        except BaseException as error:
            process_one(record, timestamp)  # has words for what cannot be joined at all
            raise FailedRecordError(record) from error

    def on_pane_due(self, slot: int, *outputs_and_context: Any) -> None:
        output, ctx = outputs_and_context
        self._enter(output, ctx)
        number = slot % 2
        after = max(self._sides[number].latest, 0)
        for time, key, row in self._buffers[number].due(slot, self._time.current_time()):
            self._key.key = key
            self._pad(number, row[RECORD], time + after)

    @abstractmethod
    def _meet(self, number: int, record: Any, timestamp: int, partners: list[BufferedRecord]) -> None:
        """Join ``record`` of side ``number`` with ``partners``, of which there is at least one."""

    def _process(self, record: Any, number: int, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        self._enter(output, ctx)
        timestamp, now = ctx.timestamp, self._time.current_time()
        if timestamp is None:
            raise ContractError(
                "An interval join needs records with timestamps, and this one has none: process the stream with a "
                "generator of EventTimeExtension.new_watermark_generator_builder(...) before key_by."
            )
        if timestamp <= now:
            name = ("on_late_left", "on_late_right")[number]
            take_late(name, self._sides[number].on_late, record, output, ctx)
        else:
            self._take(number, record, timestamp, ctx.state_manager.current_key, now)

    def _enter(self, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        """Get ready: only with the first record or pane is it known where they come from and go to."""
        if ctx is self._ctx:
            return
        self._ctx = ctx
        self._key = partition_access(ctx.state_manager)
        self._stamping = Stamping(output)
        left, right = (
            JoinBuffer(
                self._key.panes,
                number,
                side.latest - side.earliest,
                side.latest,
                emit_unmatched=side.pads,
                alike=side.counts,
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
                self._meet(number, record, timestamp, partners)
            except BaseException as error:
                raise FailedCallbackError("process_record") from error
            if self._sides[1 - number].parts:
                other.remove_met(key, partners)
            if side.parts:
                return
        if timestamp + side.latest > now:
            self._buffers[number].add(key, [timestamp, None if side.counts else record, bool(partners)])
        elif side.pads and not partners:
            self._key.key = key
            self._pad(number, record, timestamp)

    def _pad(self, number: int, record: Any, timestamp: int) -> None:
        left, right = (None, record) if number else (record, None)
        try:
            process: Callable[..., object] = self._function.process_record
            check_returned(process(left, right, self._stamping.at(timestamp), cast(RuntimeContext, self._ctx)))
        except BaseException as error:
            raise FailedCallbackError("process_record") from error


class PairJoin(IntervalJoin[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """INNER, LEFT, RIGHT and FULL: the function gets every pair, and its results the later timestamp of the two."""

    def _meet(self, number: int, record: Any, timestamp: int, partners: list[BufferedRecord]) -> None:
        join_pair: Callable[..., object] = self._function.process_record
        stamping, ctx = self._stamping, cast(RuntimeContext, self._ctx)
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


class ExistenceJoin(IntervalJoin[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """SEMI and ANTI: all that counts is whether a left record is met. It goes when it is."""

    def _meet(self, number: int, record: Any, timestamp: int, partners: list[BufferedRecord]) -> None:
        if number:
            for row in partners:
                row[MATCHED] = True
                self._found(row[RECORD], max(timestamp, row[TIME]))
        else:
            self._found(record, max(timestamp, partners[0][TIME]))

    def _found(self, left: Any, timestamp: int) -> None:
        if self._type is JoinType.SEMI:
            collector = self._stamping.at(timestamp)
            process: Callable[..., object] = self._function.process_record
            check_returned(process(left, None, collector, cast(RuntimeContext, self._ctx)))


def new_interval_join(
    function: JoinFunction[Any, Any, OUT],
    join_type: JoinType,
    lower: int,
    upper: int,
    on_late_left: LateRecord[IN1, OUT] | None,
    on_late_right: LateRecord[IN2, OUT] | None,
) -> IntervalJoin[IN1, IN2, OUT]:
    """The join of a type; ``lower`` and ``upper``: where right records are, in ms from the left one."""
    pads_left = join_type in (JoinType.LEFT, JoinType.FULL, JoinType.ANTI)
    pads_right = join_type in (JoinType.RIGHT, JoinType.FULL)
    asks_only = join_type in (JoinType.SEMI, JoinType.ANTI)
    left = Side(lower, upper, pads_left, asks_only, False, on_late_left)
    right = Side(-upper, -lower, pads_right, False, asks_only, on_late_right)
    kind = ExistenceJoin if asks_only else PairJoin
    return kind(function, join_type, left, right)
