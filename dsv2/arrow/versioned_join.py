"""The versioned join on columns: left rows are joined with the version of their key that was valid at their time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dsv2.arrow.aggregates import times_of
from dsv2.arrow.column_join import NONE, Declared
from dsv2.arrow.encoding import Numbers
from dsv2.arrow.records import ArrowWholeNumbers, table_of
from dsv2.arrow.segments import bounds, first_at_least, greatest, sorting, tails
from dsv2.arrow.waiting_joins import WaitingJoin
from dsv2.extension.join.functions import JoinType
from dsv2.model.record_batch import RecordBatch
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN


class VersionedColumns(WaitingJoin):
    """Left rows wait until event time has reached them. The versions of a key are in order of their timestamps."""

    def __init__(self, join: Declared) -> None:
        super().__init__(join, {"time": int})

    @property
    def state_layout(self) -> str:
        return "the versions of each key, as rows, and the left rows that wait for event time"

    def dsv2_process_side(self, side: int, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        now, times = ctx.event_timers.current_time(), times_of(batch)
        table = table_of(batch.records, self.join.kinds[side])
        if side == 0:
            table, times = self._drop_late(table, times, times <= now, ctx)
            self._lists(side, ctx).append(self._keys(side, table), self._with(table, times))
        else:
            self._add_versions(self._keys(side, table), self._with(table, times), now, ctx)
        waits = np.flatnonzero(times > now)
        keys = [key.take(pa.array(waits)) for key in self._keys(side, table)]
        ctx.event_timers.register(keys, times[waits])

    def _add_versions(self, keys: Sequence[pa.ChunkedArray], added: pa.Table, now: int, ctx: Any) -> None:
        versions = self._lists(1, ctx)
        rows, of = versions.get(keys).followed_by(added)
        times = self._column(0, rows)
        late = times < greatest(of, np.where(times <= now, times, LONG_MIN))
        if late.any():
            ctx.metric_group.counter("late_records_dropped").inc(int(np.count_nonzero(late)))
        order = sorting(of, times)
        order = order[_counts(of[order], times[order], now)]
        versions.put(keys, rows.take(pa.array(order)), of[order])

    def _fire(self, keys: Sequence[pa.ChunkedArray], now: int, output: Any, ctx: Any) -> None:
        waiting, versions = self._lists(0, ctx).get(keys), self._lists(1, ctx).get(keys)
        times, valid_from = self._column(0, waiting.rows), self._column(0, versions.rows)
        due = np.flatnonzero(times <= now)
        if len(due):
            kept = np.flatnonzero(times > now)
            self._lists(0, ctx).put(keys, waiting.rows.take(pa.array(kept)), waiting.of[kept])
            due = due[np.argsort(times[due], kind="stable")]
            segments = bounds(versions.of, versions.count)
            first, last = segments[waiting.of[due]], segments[waiting.of[due] + 1]
            later = first_at_least(valid_from, first, last, times[due] + 1)
            places = np.where(times[due] == LONG_MAX, last, later) - 1
            found = places >= first
            if self.join.join_type is JoinType.INNER:
                due, places, found = due[found], places[found], found[found]
            stamps = ArrowWholeNumbers(pa.array(times[due]))
            self._emit(output, (waiting.rows, versions.rows), (due, np.where(found, places, NONE)), stamps)
        counts = _counts(versions.of, valid_from, now)
        if not counts.all():
            kept = np.flatnonzero(counts)
            self._lists(1, ctx).put(keys, versions.rows.take(pa.array(kept)), versions.of[kept])


def _counts(of: Numbers, times: Numbers, now: int) -> Numbers:
    """Return which versions may be valid at ``now`` or later: the last up to ``now``, and those after it."""
    after = np.append(times[1:], 0)
    counts: Numbers = tails(of) | ((after > now) & (after != times))
    return counts
