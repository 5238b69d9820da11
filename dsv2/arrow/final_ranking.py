"""The first or last record of each key at a time that its records name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from dsv2.arrow.keyed_operator import KeyedOperator, times_or_least, with_time
from dsv2.arrow.ranking import Ranking
from dsv2.arrow.records import ArrowWholeNumbers, records_of, table_of
from dsv2.arrow.schema import schema_of
from dsv2.base.type_variables import T
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.model.record_batch import RecordBatch
from dsv2.state import StateDeclaration, StateTtl, ValueStateDeclaration


class FirstUntil(KeyedOperator[T, T], EventTimeProcessFunction, Generic[T]):
    """Emits the first record of a key when event time reaches a field of it, and forgets the key.

    Args:
        kind: The class of the records.
        key_names: The fields of the key.
        ranking: The order.
        until: The field, a time in ms.
        ttl: The time to live of the record of a key, after its last change.
    """

    def __init__(
        self, kind: type[T], key_names: Sequence[str], ranking: Ranking, until: str, ttl: StateTtl | None
    ) -> None:
        super().__init__(kind, key_names, kind)
        self.ranking = ranking
        self.until = until
        self._stored: type[Any]
        self._stored, self._time = (kind, "") if ranking.by else with_time(kind)
        self._state = ValueStateDeclaration(f"first {ranking}, until {until}", self._stored, ttl=ttl)

    @property
    def record_types(self) -> tuple[type, ...]:
        return self.kind, self._stored, self.kind

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._state]

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table = table_of(batch.records, self.kind)
        if self._time:
            table = table.append_column(self._time, pa.array(times_or_least(batch)))
        is_late = table[self.until].to_numpy() <= ctx.event_timers.current_time()
        if is_late.any():
            ctx.metric_group.counter("late_records_dropped").inc(int(np.count_nonzero(is_late)))
            table = table.filter(pa.array(~is_late))
        self._keep_first(table, ctx)

    def _keep_first(self, table: pa.Table, ctx: Any) -> None:
        state, places = ctx.keyed_state(self._state), ctx.columns.find(self._keys_of(table)).places
        _, firsts = np.unique(places, return_index=True)
        keys = self._keys_of(table.take(pa.array(firsts)))
        known = state.contains(keys)
        before = state.get(keys).filter(known)
        rows = pa.concat_tables([before, table])
        of = np.concatenate([np.flatnonzero(known.to_numpy(zero_copy_only=False)), places])
        chosen = self.ranking.first(rows, of, self._time, 1)
        new = rows.take(pa.array(chosen[chosen >= len(before)]))
        state.update(self._keys_of(new), dict(zip(new.column_names, new.columns, strict=True)))
        ctx.event_timers.register(self._keys_of(new), new[self.until])

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        """Nothing happens between timers."""

    def on_event_timers(self, timers: pa.Table, output: Any, ctx: Any) -> None:
        """Called when the times of records are reached. A record that has been replaced waits for another time."""
        keys, state = timers.columns[: len(self.key_names)], ctx.keyed_state(self._state)
        _, firsts = np.unique(ctx.columns.find(keys).places, return_index=True)
        keys = [key.take(pa.array(firsts)) for key in keys]
        rows = state.get(keys).filter(state.contains(keys))
        is_due = rows[self.until].to_numpy() <= ctx.event_timers.current_time()
        due = rows.filter(pa.array(is_due)).sort_by(self.until)
        state.remove(self._keys_of(due))
        times = due[self.until].combine_chunks()
        records = records_of(due.select(schema_of(self.kind).names), self.kind)
        output.collect_batch(RecordBatch(records, ArrowWholeNumbers(times)))
