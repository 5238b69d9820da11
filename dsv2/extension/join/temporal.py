"""The processing-time temporal join: a probe record is joined with the latest rows of the build side (FLIP-326).

The build side is the changelog of a table: all of its rows (the snapshot), then changes. Probe records are buffered in
the state until the snapshot is complete, which the build side signals with the use-processing-time flag or by its end,
or, if the mode says so, by its event time or idleness. Until then the event time of the build side is not forwarded, so
that the buffered records are not late downstream.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any, Generic, TypeAlias

from dsv2.base.type_variables import IN1, IN2, OUT
from dsv2.extension.join.contents import LATEST, LATEST_ROWS, WAITING
from dsv2.extension.join.functions import JoinFunction, JoinProcessFunction, JoinType, deletes, written_by_user
from dsv2.extension.join.modes import TemporalMode
from dsv2.extension.join.result_timestamps import Stamping
from dsv2.extension.join.snapshot import PROBES_WAITING, SIGNALS, completes, holds_time_back, time_out
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction
from dsv2.model.context import Collector, NonPartitionedContext, PartitionedContext, RuntimeContext
from dsv2.spi import FailedCallbackError, FailedRecordError, check_returned
from dsv2.state import MapStateDeclaration, StateDeclaration, StateDeclarations
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult

_Entry: TypeAlias = dict[Any, Any]


class TemporalJoin(
    JoinProcessFunction, TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT], Generic[IN1, IN2, OUT]
):
    """The temporal join."""

    _described = "A processing-time temporal join"
    dsv2_refuses_error_policy = (
        "one callback joins all records that have waited for the snapshot. Check the records in a function before it."
    )
    kept_fields = ("_is_over",)

    def __init__(
        self,
        function: JoinFunction[Any, Any, OUT],
        join_type: JoinType,
        is_deletion: Callable[[IN2], bool] | None,
        row_key: Callable[[IN2], Hashable] | None,
        mode: TemporalMode,
    ) -> None:
        super().__init__(function)
        self._pads = join_type is JoinType.LEFT
        self._is_deletion = is_deletion
        self._row_key = row_key
        self._mode = mode
        self._rows: MapStateDeclaration[Any, Any] | None = None  # without it, the row is in the entry of its key
        if row_key is not None or mode.ttl is not None:
            self._rows = StateDeclarations.map_state("rows", object, object, ttl=mode.ttl)
        self._is_over = False  # the snapshot of the build side
        self._warned_at: int | None = None

    @property
    def written_by_user(self) -> Collection[object]:
        return written_by_user(self._function, self._is_deletion, self._row_key)

    @property
    def state_layout(self) -> str:
        row = "row" if self._rows is None else "rows"
        return f"the latest {row} of each key of the build side, and the probe records that wait for its snapshot"

    @property
    def contents(self) -> str:
        return LATEST_ROWS

    def uses_states(self) -> Collection[StateDeclaration]:
        return () if self._rows is None else (self._rows,)

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return SIGNALS

    def open(self, ctx: NonPartitionedContext[OUT]) -> None:
        ctx.metric_group.counter(PROBES_WAITING)  # so that 0 is shown

    def process_record_from_first_input(
        self, record: IN1, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        if not self._is_over:
            self._wait(record, ctx)
            return
        if self._rows is not None:
            self._join_all(record, ctx.state_manager.get_state(self._rows).values(), output, ctx)
            return
        state: Any = ctx.state_manager
        entry: _Entry | None = state.find()
        self._join(record, entry.get(LATEST) if entry else None, output, ctx)

    def process_record_from_second_input(
        self, record: IN2, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        state: Any = ctx.state_manager
        if self._rows is not None:
            rows, row_key = state.get_state(self._rows), self._key_of(record)
            if deletes(self._is_deletion, record):
                rows.remove(row_key)
            else:
                rows.put(row_key, record)
        elif deletes(self._is_deletion, record):
            state.entry().pop(LATEST, None)
        else:
            state.entry()[LATEST] = record

    def on_watermark_from_second_input(
        self, watermark: Watermark, output: Collector[OUT], ctx: NonPartitionedContext[OUT]
    ) -> WatermarkHandlingResult:
        if completes(watermark, self._mode):
            self._end_snapshot(ctx)
        holds = holds_time_back(watermark) and not self._is_over
        return WatermarkHandlingResult.POLL if holds else WatermarkHandlingResult.PEEK

    def end_second_input(self, ctx: NonPartitionedContext[OUT]) -> None:
        self._end_snapshot(ctx)

    def on_processing_timer(self, timestamp: int, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        timers = ctx.processing_time_manager
        now = timers.current_time()
        if now < timestamp:
            return  # it fires because all input has ended, which also completes the snapshot
        time_out(self._mode, 1, self._warned_at != now, ctx)
        self._warned_at = now
        state: Any = ctx.state_manager
        state.entry()[WAITING][2] = now + self._mode.timeout
        timers.register_timer(now + self._mode.timeout)

    def _wait(self, record: IN1, ctx: PartitionedContext[OUT]) -> None:
        state: Any = ctx.state_manager
        entry: _Entry = state.entry()
        waiting = entry.get(WAITING)
        if waiting is None:
            due = ctx.processing_time_manager.current_time() + self._mode.timeout
            ctx.processing_time_manager.register_timer(due)
            waiting = entry[WAITING] = [[], [], due]
        records, timestamps, _ = waiting
        records.append(record)
        timestamps.append(ctx.timestamp)
        ctx.metric_group.counter(PROBES_WAITING).inc()

    def _end_snapshot(self, ctx: NonPartitionedContext[OUT]) -> None:
        if not self._is_over:
            self._is_over = True
            ctx.apply_to_all_partitions(self._join_waiting)

    def _join_waiting(self, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        state: Any = ctx.state_manager
        if WAITING not in (state.find() or ()):
            return
        entry: _Entry = state.entry()
        records, timestamps, due = entry.pop(WAITING)
        ctx.processing_time_manager.delete_timer(due)
        ctx.metric_group.counter(PROBES_WAITING).inc(-len(records))
        row, stamping = entry.get(LATEST), Stamping(output, ctx)
        rows = [row] if self._rows is None else ctx.state_manager.get_state(self._rows).values()
        for record, timestamp in zip(records, timestamps, strict=True):
            try:
                self._join_all(record, rows, stamping.at(timestamp), stamping.ctx)
            except FailedCallbackError as error:
                raise FailedRecordError(record) from error

    def _key_of(self, row: IN2) -> Hashable:
        """The key of a row among those of its key."""
        if self._row_key is None:
            return None
        try:
            row_key = self._row_key(row)
            hash(row_key)
        except BaseException as error:
            raise FailedCallbackError("row_key") from error
        return row_key

    def _join_all(self, record: IN1, rows: Iterable[Any], output: Collector[OUT], ctx: RuntimeContext) -> None:
        for row in rows or (None,):
            self._join(record, row, output, ctx)

    def _join(self, record: IN1, row: IN2 | None, output: Collector[OUT], ctx: RuntimeContext) -> None:
        if row is None and not self._pads:
            return
        try:
            process: Callable[..., object] = self._function.process_record
            check_returned(process(record, row, output, ctx))
        except BaseException as error:
            raise FailedCallbackError("process_record") from error
