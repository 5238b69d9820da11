"""The processing-time temporal join on columns: left rows are joined with the latest row of their key."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dsv2.aggregates.field_types import field_types
from dsv2.arrow.column_join import NONE, ColumnJoin, Declared
from dsv2.arrow.records import ArrowWholeNumbers, table_of, taken_times
from dsv2.arrow.segments import bounds
from dsv2.base.derived_classes import derived_class, unused_name
from dsv2.extension.join.functions import JoinType
from dsv2.extension.join.modes import TemporalMode
from dsv2.extension.join.snapshot import PROBES_WAITING, SIGNALS, completes, holds_time_back, time_out
from dsv2.model.record_batch import RecordBatch
from dsv2.state import StateDeclarations
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult
from dsv2.watermark.event_time import LONG_MAX


class TemporalColumns(ColumnJoin):
    """Left rows wait until the snapshot of the right side is complete.

    Args:
        join: The join.
        mode: The mode.
    """

    def __init__(self, join: Declared, mode: TemporalMode) -> None:
        left, right = join.kinds
        self._time = unused_name("timestamp", field_types(left) or ())
        waiting = derived_class(left, "waiting", (*(field_types(left) or {}).items(), (self._time, int | None)))
        latest = StateDeclarations.list_state("latest", right, ttl=mode.ttl)
        super().__init__(join, [StateDeclarations.list_state("waiting", waiting), latest])
        self._mode = mode
        self._is_over = False  # the snapshot

    @property
    def state_layout(self) -> str:
        return "the latest row of each key of the build side, as columns, and the rows that wait for its snapshot"

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return SIGNALS

    def open(self, ctx: Any) -> None:
        ctx.metric_group.counter(PROBES_WAITING)  # so that 0 is shown

    def dsv2_process_side(self, side: int, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table = table_of(batch.records, self.join.kinds[side])
        if side == 1:
            self._replace(table, ctx)
        elif self._is_over:
            self._join(self._keys(0, table), table, batch.timestamps, output, ctx)
        else:
            self._wait(table, batch.timestamps, ctx)

    def on_watermark_from_second_input(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        if completes(watermark, self._mode):
            self._end_snapshot(output, ctx)
        holds = holds_time_back(watermark) and not self._is_over
        return WatermarkHandlingResult.POLL if holds else WatermarkHandlingResult.PEEK

    def end_second_input(self, output: Any, ctx: Any) -> None:
        self._end_snapshot(output, ctx)

    def on_processing_timers(self, timers: pa.Table, output: Any, ctx: Any) -> None:
        """Called when left rows have waited for long, and when all input has ended."""
        now = ctx.processing_timers.current_time()
        due = timers.filter(pa.array(timers[-1].to_numpy() <= now))
        if not len(due):
            return
        time_out(self._mode, len(due), True, ctx)
        ctx.processing_timers.register(due.columns[:-1], np.full(len(due), now + self._mode.timeout))

    def _replace(self, table: pa.Table, ctx: Any) -> None:
        rows = table.take(ctx.columns.find(self._keys(1, table)).last_rows())
        self._lists(1, ctx).put(self._keys(1, rows), rows, np.arange(len(rows)))

    def _wait(self, table: pa.Table, timestamps: Sequence[int | None] | None, ctx: Any) -> None:
        keys, waiting = self._keys(0, table), self._lists(0, ctx)
        before = waiting.get(keys)
        is_new = np.isin(before.of_keys, before.of, invert=True)
        new = [key.filter(pa.array(is_new)) for key in keys]
        due = ctx.processing_timers.current_time() + self._mode.timeout
        ctx.processing_timers.register(new, np.full(np.count_nonzero(is_new), due))
        waiting.append(keys, table.append_column(self._time, _times(timestamps, len(table))))
        ctx.metric_group.counter(PROBES_WAITING).inc(len(table))

    def _end_snapshot(self, output: Any, ctx: Any) -> None:
        if self._is_over:
            return
        self._is_over = True
        ctx.processing_timers.take_due(LONG_MAX)  # those of the timeout
        width = len(self.join.names[0])
        for table in self._lists(0, ctx).tables():
            rows = pa.table(table.columns[width:], table.column_names[width:])
            times = rows[self._time].combine_chunks()
            stamps = times.to_pylist() if times.null_count else ArrowWholeNumbers(times)
            self._join(table.columns[:width], rows, stamps, output, ctx)
            self._lists(0, ctx).remove(table.columns[:width])
            ctx.metric_group.counter(PROBES_WAITING).inc(-len(rows))

    def _join(self, keys: Sequence[pa.ChunkedArray], rows: pa.Table, times: Any, output: Any, ctx: Any) -> None:
        latest = self._lists(1, ctx).get(keys)
        segments = bounds(latest.of, latest.count)
        partners = segments[latest.of_keys]
        found = segments[latest.of_keys + 1] > partners
        chosen = np.arange(len(rows))
        partners = np.where(found, partners, NONE)
        if self.join.join_type is JoinType.INNER and not found.all():
            chosen, partners = chosen[found], partners[found]
            times = taken_times(times, pa.array(chosen))
        self._emit(output, (rows, latest.rows), (chosen, partners), times)


def _times(timestamps: Sequence[int | None] | None, count: int) -> pa.Array:
    if isinstance(timestamps, ArrowWholeNumbers):
        return timestamps.array
    return pa.nulls(count, pa.int64()) if timestamps is None else pa.array(timestamps, pa.int64())
