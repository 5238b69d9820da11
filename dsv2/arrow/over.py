"""Aggregates of the last rows of each record, in event-time order (SQL ``OVER``)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.aggregates import Key, Lead
from dsv2.aggregates.neighbours import Neighbour
from dsv2.aggregates.partial_results import defaults_of
from dsv2.aggregates.result import DeclaredResult
from dsv2.arrow.aggregates import ColumnAggregate, times_of
from dsv2.arrow.encoding import Numbers
from dsv2.arrow.frames import results_of_frames
from dsv2.arrow.keyed.timers import TIMESTAMP
from dsv2.arrow.keyed_operator import with_time
from dsv2.arrow.records import ArrowWholeNumbers, records_of, table_of
from dsv2.arrow.schema import schema_of
from dsv2.arrow.segments import first_at_least, sorting, starts, stops, tails
from dsv2.base.type_variables import IN, OUT
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.model.record_batch import RecordBatch
from dsv2.state import ListStateDeclaration, StateDeclaration, StateTtl
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN


@dataclass(frozen=True, slots=True)
class OverFrame:
    """The rows that are aggregated for a record: the last ones of its key, with itself. One of them is None.

    Attributes:
        rows: The number of rows.
        range: By how many ms they are at most older. All rows with the same timestamp belong to it.
        lag: The number of rows before it that are read as well.
        lead: Likewise the number of rows after it, for which the result waits.
    """

    rows: int | None
    range: int | None
    lag: int = 0
    lead: int = 0

    def __str__(self) -> str:
        ahead = f", {self.lead} ahead" if self.lead else ""
        if self.range is None:
            return f"last {self._kept} rows{ahead}"
        return f"rows of the last {self.range} ms" + (f", {self._kept} rows" if self.lag else "") + ahead

    @property
    def _kept(self) -> int:
        return max(self.rows or 1, self.lag + 1)

    def due(self, of: Numbers, times: Numbers, now: int, first_due: Numbers) -> tuple[Numbers, Numbers]:
        """Return the rows whose results are complete at ``now``, in this order, and the timestamps of the results.

        Args:
            of: The numbers of the keys of all rows.
            times: Their timestamps.
            now: Event time.
            first_due: The first timer of the key of each row since results were emitted.
        """
        complete = times
        if self.lead:
            following = np.arange(len(of)) + self.lead
            complete = np.full(len(of), LONG_MAX, np.int64)
            has_following = following < stops(of)
            complete[has_following] = times[following[has_following]]
        chosen = np.flatnonzero((complete <= now) & (complete >= first_due))
        chosen = chosen[np.argsort(complete[chosen], kind="stable")]
        return chosen, complete[chosen]

    def bounds(self, of: Numbers, times: Numbers, chosen: Numbers) -> tuple[Numbers, Numbers]:
        """Return the first row of the frames of ``chosen`` rows, and the row after the last."""
        first = starts(of)[chosen]
        if self.range is None:
            assert self.rows is not None
            return np.maximum(first, chosen - self.rows + 1), chosen + 1
        own = times[chosen]
        oldest = np.maximum(own, LONG_MIN + self.range) - self.range
        return first_at_least(times, first, chosen, oldest), first_at_least(times, chosen, stops(of)[chosen], own + 1)

    def needed(self, of: Numbers, times: Numbers, now: int) -> Numbers:
        """Return which rows belong to frames of records after ``now``, or are such records."""
        pending = times > now
        if self.range is not None and now == LONG_MAX:
            return pending
        stop = stops(of)
        done = np.concatenate([np.zeros(1, np.int64), np.cumsum(~pending)])
        further = done[stop] - done[:-1]  # the row and those after it, up to now
        needed: Numbers = pending | (further < self._kept + self.lead)
        if self.range is not None:
            oldest = np.full(len(of), now + 1)
            if self.lead:  # the first row whose result is still to come
                waits = np.concatenate([np.zeros(1, np.int64), np.cumsum(pending | (further <= self.lead))])
                oldest = np.minimum(times[stop - (waits[stop] - waits[starts(of)])], oldest)
            needed |= times >= np.maximum(oldest, LONG_MIN + self.range) - self.range
        return needed


class OverColumns(ColumnAggregate[IN, OUT], EventTimeProcessFunction):
    """Emits each record with aggregates of its frame when event time has reached it, in the order of event time.

    Args:
        result: The aggregates.
        kind: The class of the records.
        key_names: The fields of the key.
        emitted: The class of the results. Fields that are not aggregates are those of the record.
        frame: The frame.
        neighbours: The fields of the results that are values of other rows.
        ttl: The time to live of rows.
    """

    def __init__(
        self,
        result: DeclaredResult[Any],
        kind: type[IN],
        key_names: Sequence[str],
        emitted: type[OUT],
        frame: OverFrame,
        neighbours: Mapping[str, Neighbour],
        ttl: StateTtl | None,
    ) -> None:
        super().__init__(result, kind, key_names)
        self.emitted = emitted
        self.frame = frame
        self.neighbours = neighbours
        self._defaults = defaults_of(emitted)
        self._stored, self._time = with_time(kind)
        self._state = ListStateDeclaration(str(frame), self._stored, ttl=ttl)

    @property
    def record_types(self) -> tuple[type, ...]:  # type: ignore[override]  # and the class of rows
        return self.kind, self._stored, self.emitted

    @property
    def dsv2_tables_of(self) -> type:
        return self.kind

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._state]

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        times, now = times_of(batch), ctx.event_timers.current_time()
        table = table_of(batch.records, self.kind).append_column(self._time, pa.array(times))
        if len(times) and times.min() <= now:
            ctx.metric_group.counter("late_records_dropped").inc(int(np.count_nonzero(times <= now)))
            table, times = table.filter(pa.array(times > now)), times[times > now]
        keys = self._keys_of(table)
        ctx.keyed_state(self._state).append(keys, table)
        ctx.event_timers.register(keys, times)
        if self.frame.lead:  # the last results are emitted at the end of the input
            ctx.event_timers.register(keys, LONG_MAX)

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        """Nothing happens between timers."""

    def on_event_timers(self, timers: pa.Table, output: Any, ctx: Any) -> None:
        """Called when records are due, or when rows are no longer needed."""
        keys, now = timers.columns[: len(self.key_names)], ctx.event_timers.current_time()
        state = ctx.keyed_state(self._state)
        found = state.get(keys)
        order = sorting(found.of, found.rows[self._time].to_numpy())
        rows, of = found.rows.take(pa.array(order)), found.of[order]
        times = rows[self._time].to_numpy()
        first_due = np.full(found.count, LONG_MAX, np.int64)
        np.minimum.at(first_due, found.of_keys, timers[TIMESTAMP].to_numpy())
        chosen, stamps = self.frame.due(of, times, now, first_due[of])
        if len(chosen):
            self._emit(rows, of, times, chosen, stamps, output)
        needed = self.frame.needed(of, times, now)
        state.put(keys, rows.filter(pa.array(needed)), of[needed])
        if self.frame.range is not None:
            self._forget_later(keys, found.of_keys, of, times, np.flatnonzero(needed & (times <= now)), ctx)

    def _emit(self, rows: pa.Table, of: Numbers, times: Numbers, chosen: Numbers, stamps: Numbers, output: Any) -> None:
        low, high = self.frame.bounds(of, times, chosen)
        inputs, places = self._inputs(rows), pa.array(chosen)
        columns = {}
        for name in schema_of(self.emitted).names:
            part = self.result.parts.get(name)
            if name in self.neighbours:
                columns[name] = self._neighbour(name, rows, of, chosen)
            elif part is None or isinstance(part, Key):
                column = rows[name] if part is None else self._keys_of(rows)[part.index or 0]
                columns[name] = column.take(places)
            else:
                columns[name] = results_of_frames(self.columns[name], inputs[name], low, high)
        records = records_of(pa.table(columns), self.emitted)
        output.collect_batch(RecordBatch(records, ArrowWholeNumbers(pa.array(stamps))))

    def _neighbour(self, name: str, rows: pa.Table, of: Numbers, chosen: Numbers) -> pa.ChunkedArray:
        part = self.neighbours[name]
        places = chosen + (part.offset if isinstance(part, Lead) else -part.offset)
        exists = (places >= starts(of)[chosen]) & (places < stops(of)[chosen])
        found = rows[part.field].take(pa.array(places, mask=~exists))
        default = self._defaults.get(name)
        return found if default is None else pc.fill_null(found, pa.scalar(default, found.type))

    def _forget_later(
        self, keys: Sequence[pa.ChunkedArray], of_keys: Numbers, of: Numbers, times: Numbers, kept: Numbers, ctx: Any
    ) -> None:
        """Register a timer for the time at which no emitted row of a key is needed, if no other record comes."""
        assert self.frame.range is not None
        last = kept[tails(of[kept])]
        ends = np.minimum(times[last], LONG_MAX - 1 - self.frame.range) + self.frame.range
        later = ends > ctx.event_timers.current_time()
        place = np.zeros(int(of_keys.max(initial=0)) + 1, np.int64)
        place[of_keys] = np.arange(len(of_keys))
        chosen = pa.array(place[of[last[later]]])
        ctx.event_timers.register([key.take(chosen) for key in keys], ends[later])
