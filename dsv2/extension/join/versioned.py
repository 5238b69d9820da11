"""The versioned join: a left record is joined with the version of its key that was valid at its time.

Flink's event-time temporal join, ``FOR SYSTEM_TIME AS OF`` the time of the left record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Any, Generic

from dsv2.base.type_variables import IN1, IN2, OUT
from dsv2.extension.event_time import EventTimeManager, TwoInputNonBroadcastEventTimeStreamProcessFunction
from dsv2.extension.join.functions import (
    JoinFunction,
    JoinProcessFunction,
    JoinType,
    LateRecord,
    PairTimes,
    deletes,
    join_timed,
    take_late,
    timestamp_of,
    written_by_user,
)
from dsv2.model.context import Collector, PartitionedContext
from dsv2.spi import FailedCallbackError, FailedRecordError
from dsv2.state import StateDeclaration, StateDeclarations, StateTtl

_valid_from = itemgetter(0)


class VersionedJoin(
    JoinProcessFunction, TwoInputNonBroadcastEventTimeStreamProcessFunction[IN1, IN2, OUT], Generic[IN1, IN2, OUT]
):
    """The versioned join.

    A timer at each timestamp joins the left records, and removes the versions that are no longer valid. So one version
    at or before event time is kept. Versions are pairs (timestamp, row), with None for a deletion, which is kept too:
    a late version must not come after it.
    """

    _described = "A versioned join"
    dsv2_refuses_error_policy = (
        "one timer joins all records with the same timestamp. Check the records in a function before it."
    )

    def __init__(
        self,
        function: JoinFunction[Any, Any, OUT],
        join_type: JoinType,
        is_deletion: Callable[[IN2], bool] | None,
        on_late: tuple[LateRecord[IN1, OUT] | None, LateRecord[IN2, OUT] | None],
        ttl: StateTtl | None,
    ) -> None:
        super().__init__(function)
        self._pads = join_type is JoinType.LEFT
        self._is_deletion = is_deletion
        self._late = on_late
        self._waiting = StateDeclarations.map_state("waiting", int, list[object])
        self._versions = StateDeclarations.value_state("versions", list[tuple[int, Any]], ttl=ttl)
        self._time: EventTimeManager

    def _on_late(self) -> Collection[object]:
        return self._late

    @property
    def written_by_user(self) -> Collection[object]:
        return written_by_user(self._function, self._is_deletion, *self._late)

    @property
    def state_layout(self) -> str:
        return "the versions of each key, and the left records that wait for event time"

    def uses_states(self) -> Collection[StateDeclaration]:
        return self._waiting, self._versions

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self._time = manager

    def process_record_from_first_input(
        self, record: IN1, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        timestamp = timestamp_of(self._described, ctx)
        if timestamp <= self._time.current_time():
            take_late("on_late_left", self._late[0], record, output, ctx)
            return
        waiting = ctx.state_manager.get_state(self._waiting)
        waiting.put(timestamp, [*waiting.get(timestamp, ()), record])
        self._time.register_timer(timestamp)

    def process_record_from_second_input(
        self, record: IN2, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        timestamp, now = timestamp_of(self._described, ctx), self._time.current_time()
        state = ctx.state_manager.get_state(self._versions)
        versions = state.value() or []
        place = bisect_right(versions, timestamp, key=_valid_from)
        if place < len(versions) and versions[place][0] <= now:
            take_late("on_late_right", self._late[1], record, output, ctx)
            return
        version = timestamp, None if deletes(self._is_deletion, record) else record
        replaced = place - 1 if place and versions[place - 1][0] == timestamp else place
        versions[replaced:place] = [version]
        if timestamp <= now:
            del versions[:replaced]
        else:
            self._time.register_timer(timestamp)
        state.update(versions)

    def on_event_timer(self, timestamp: int, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        waiting = ctx.state_manager.get_state(self._waiting)
        state = ctx.state_manager.get_state(self._versions)
        versions = state.value() or []
        place = bisect_right(versions, timestamp, key=_valid_from) - 1
        valid_from, row = versions[place] if place >= 0 else (None, None)
        if (records := waiting.get(timestamp)) is not None:
            waiting.remove(timestamp)
            if row is not None or self._pads:
                times = PairTimes(timestamp, None if row is None else valid_from)
                self._join(records, row, times, output, ctx)
        if valid_from == timestamp:
            del versions[:place]
            state.update(versions)

    def _join(
        self, records: list[Any], row: Any, times: PairTimes, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        for record in records:
            try:
                join_timed(self._function, record, row, times, output, ctx)
            except BaseException as error:
                failed = FailedCallbackError(self._callback)
                failed.__cause__ = error
                raise FailedRecordError(record) from failed
