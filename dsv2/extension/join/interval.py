"""The join on event time: records meet whose timestamps are not too far apart (Flink ``IntervalJoinOperator``).

A record waits for partners until event time says that no more can come. So the state holds what the bounds span,
however long the job runs. Each key has one event timer, at the time when the first of its records can go.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar

from dsv2.context import Collector, PartitionedContext, RuntimeContext
from dsv2.errors import ContractError
from dsv2.extension.event_time import EventTimeManager, TwoInputNonBroadcastEventTimeStreamProcessFunction
from dsv2.extension.join.functions import JoinFunction, JoinType, LateRecord, require_keyed, take_late, written_by_user
from dsv2.functions import FailedCallbackError, Position, WrappingFunction

__all__ = ("ExistenceJoin", "IntervalJoin", "PairJoin", "Side", "new_interval_join")

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
T = TypeVar("T")

_Entry: TypeAlias = dict[Any, Any]
_Waiting: TypeAlias = list[list[Any]]
"""Columns in the order of the first one: timestamps, records, whether each record was met. As many as are needed."""

# Under what an entry has them. Strings are the names of states, and numbers from 0 the runtime's own.
_LEFT, _RIGHT = -1, -2
_TIMER = -3
"""The time of the key's timer."""


@dataclass(frozen=True, slots=True)
class Side(Generic[T, OUT]):
    """One input of an interval join.

    ``earliest``, ``latest``: where the partners of a record are, in ms from its own timestamp. ``columns``: how many of
    ``_Waiting`` are needed. ``pads``: a record that was never met is joined with None in the end. ``parts``: a record
    that was met goes. ``on_late``: takes late records; None: they are dropped and counted.
    """

    slot: int
    earliest: int
    latest: int
    columns: int
    pads: bool
    parts: bool
    on_late: LateRecord[T, OUT] | None


class IntervalJoin(
    WrappingFunction, TwoInputNonBroadcastEventTimeStreamProcessFunction[IN1, IN2, OUT], Generic[IN1, IN2, OUT]
):
    """What the kinds of interval joins share: lateness, waiting, leaving. Made by ``new_interval_join``."""

    remember_keys = False

    def __init__(
        self,
        function: JoinFunction[Any, Any, OUT],
        join_type: JoinType,
        left: Side[IN1, OUT],
        right: Side[IN2, OUT],
    ) -> None:
        self._function = function
        self._type = join_type
        self._left = left
        self._right = right
        self._time: EventTimeManager

    @property
    def wrapped(self) -> JoinFunction[Any, Any, OUT]:
        return self._function

    @property
    def written_by_user(self) -> Collection[object]:
        return written_by_user(self._function, self._left.on_late, self._right.on_late)

    @property
    def state_layout(self) -> str:
        return f"the records that wait for partners in {self._type.name} interval joins"

    def check_position(self, position: Position) -> None:
        require_keyed("An interval join", position)

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self._time = manager

    def process_record_from_first_input(
        self, record: IN1, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        self._take(record, self._left, self._right, output, ctx)

    def process_record_from_second_input(
        self, record: IN2, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        self._take(record, self._right, self._left, output, ctx)

    def on_event_timer(self, timestamp: int, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        state: Any = ctx.state_manager
        entry: _Entry = state.entry()
        now = self._time.current_time()
        del entry[_TIMER]
        for side in (self._left, self._right):
            if side.slot in entry:
                self._let_go(side, now, entry, output, ctx)

    @abstractmethod
    def _meet(
        self,
        record: Any,
        timestamp: int,
        side: Side[Any, OUT],
        partners: _Waiting,
        places: range,
        output: Collector[OUT],
        ctx: RuntimeContext,
    ) -> None:
        """Join ``record`` of ``side`` with the ``partners`` at ``places``, of which there is at least one."""

    def _take(
        self,
        record: Any,
        side: Side[Any, OUT],
        other: Side[Any, OUT],
        output: Collector[OUT],
        ctx: PartitionedContext[OUT],
    ) -> None:
        timestamp, now = ctx.timestamp, self._time.current_time()
        if timestamp is None:
            raise ContractError(
                "An interval join needs records with timestamps, and this one has none: process the stream with a "
                "generator of EventTimeExtension.new_watermark_generator_builder(...) before key_by."
            )
        if timestamp <= now:
            take_late("on_late_left" if side is self._left else "on_late_right", side.on_late, record, output, ctx)
            return
        state: Any = ctx.state_manager
        entry: _Entry = state.entry()
        is_met = False
        partners: _Waiting | None = entry.get(other.slot)
        if partners is not None:
            first = bisect_left(partners[0], timestamp + side.earliest)
            stop = bisect_right(partners[0], timestamp + side.latest, first)
            if first < stop:
                is_met = True
                try:
                    self._meet(record, timestamp, side, partners, range(first, stop), output, ctx)
                except Exception as error:
                    raise FailedCallbackError("process_record") from error
                if other.parts:
                    _remove(entry, other, slice(first, stop))
        if is_met and side.parts:
            return
        if timestamp + side.latest > now:
            _wait(entry, side, timestamp, record, is_met)
            self._set_timer(entry, timestamp + side.latest)
        elif side.pads and not is_met:
            self._pad(record, side, output, ctx)

    def _let_go(
        self, side: Side[Any, OUT], now: int, entry: _Entry, output: Collector[OUT], ctx: RuntimeContext
    ) -> None:
        """Drop the records of ``side`` whose partners would all be late by ``now``."""
        waiting: _Waiting = entry[side.slot]
        count = bisect_right(waiting[0], now - side.latest)
        if side.pads:
            stamping = _Stamping(output)
            for timestamp, record, *was_met in zip(*(column[:count] for column in waiting), strict=True):
                if was_met != [True]:
                    self._pad(record, side, stamping.at(timestamp + max(side.latest, 0)), ctx)
        _remove(entry, side, slice(count))
        if side.slot in entry:
            self._set_timer(entry, waiting[0][0] + side.latest)

    def _pad(self, record: Any, side: Side[Any, OUT], output: Collector[OUT], ctx: RuntimeContext) -> None:
        left, right = (record, None) if side is self._left else (None, record)
        try:
            self._function.process_record(left, right, output, ctx)
        except Exception as error:
            raise FailedCallbackError("process_record") from error

    def _set_timer(self, entry: _Entry, time: int) -> None:
        """See to it that the key's timer fires at ``time``, or before."""
        timer = entry.get(_TIMER)
        if timer is not None:
            if timer <= time:
                return
            self._time.delete_timer(timer)
        entry[_TIMER] = time
        self._time.register_timer(time)


class PairJoin(IntervalJoin[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """INNER, LEFT, RIGHT and FULL: the function gets every pair, and its results the later timestamp of the two."""

    def _meet(
        self,
        record: Any,
        timestamp: int,
        side: Side[Any, OUT],
        partners: _Waiting,
        places: range,
        output: Collector[OUT],
        ctx: RuntimeContext,
    ) -> None:
        times, records, *are_met = partners
        join_pair = self._function.process_record
        stamping = _Stamping(output)
        is_left = side is self._left
        for place in places:
            collector = output if times[place] <= timestamp else stamping.at(times[place])
            if is_left:
                join_pair(record, records[place], collector, ctx)
            else:
                join_pair(records[place], record, collector, ctx)
        for flags in are_met:
            flags[places.start : places.stop] = [True] * len(places)


class ExistenceJoin(IntervalJoin[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """SEMI and ANTI: all that counts is whether a left record is met. It goes when it is."""

    def _meet(
        self,
        record: Any,
        timestamp: int,
        side: Side[Any, OUT],
        partners: _Waiting,
        places: range,
        output: Collector[OUT],
        ctx: RuntimeContext,
    ) -> None:
        if self._type is JoinType.ANTI:
            return
        stamping = _Stamping(output)
        if side is self._left:
            first_met = max(timestamp, partners[0][places.start])
            self._function.process_record(record, None, stamping.at(first_met), ctx)
        else:
            times, records = partners
            for place in places:
                collector = stamping.at(max(timestamp, times[place]))
                self._function.process_record(records[place], None, collector, ctx)


class _Stamping(Generic[OUT]):
    """The collector of a function, for results that have a timestamp of their own."""

    __slots__ = ("_output", "_timestamp")

    def __init__(self, output: Collector[OUT]) -> None:
        self._output = output
        self._timestamp = 0

    def at(self, timestamp: int) -> Self:
        """Give ``timestamp`` (ms) to what is collected from now on."""
        self._timestamp = timestamp
        return self

    def collect(self, record: OUT) -> None:
        """Emit ``record`` with that timestamp."""
        self._output.collect_and_overwrite_timestamp(record, self._timestamp)

    def collect_and_overwrite_timestamp(self, record: OUT, timestamp: int) -> None:
        """Emit ``record`` with another one."""
        self._output.collect_and_overwrite_timestamp(record, timestamp)


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
    if join_type in (JoinType.SEMI, JoinType.ANTI):
        left = Side(_LEFT, lower, upper, 2, pads_left, True, on_late_left)
        right = Side(_RIGHT, -upper, -lower, 1, False, False, on_late_right)  # that there is one is enough
        return ExistenceJoin(function, join_type, left, right)
    left = Side(_LEFT, lower, upper, 3 if pads_left else 2, pads_left, False, on_late_left)
    right = Side(_RIGHT, -upper, -lower, 3 if pads_right else 2, pads_right, False, on_late_right)
    return PairJoin(function, join_type, left, right)


def _wait(entry: _Entry, side: Side[Any, Any], timestamp: int, record: Any, is_met: bool) -> None:
    values = (timestamp, record, is_met)[: side.columns]
    waiting: _Waiting | None = entry.get(side.slot)
    if waiting is None:
        entry[side.slot] = [[value] for value in values]
        return
    place = bisect_right(waiting[0], timestamp)
    for column, value in zip(waiting, values, strict=True):
        column.insert(place, value)


def _remove(entry: _Entry, side: Side[Any, Any], places: slice) -> None:
    waiting: _Waiting = entry[side.slot]
    for column in waiting:
        del column[places]
    if not waiting[0]:
        del entry[side.slot]
