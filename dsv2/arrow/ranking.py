"""The first or last record of each key, and the first ``n`` in windows, by a field or by time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from dsv2.aggregates.field_types import field_types
from dsv2.arrow.aggregates import times_of
from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.keyed.panes import ListPanes
from dsv2.arrow.keyed_operator import KeyedOperator, times_or_least, with_time
from dsv2.arrow.records import ArrowWholeNumbers, chosen_records, records_of, table_of
from dsv2.arrow.schema import schema_of
from dsv2.arrow.segments import codes_of, greatest, heads, ranks, sorting
from dsv2.arrow.windows import late_records, rows_by_window
from dsv2.base.derived_classes import derived_class
from dsv2.base.type_variables import IN, OUT, T
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.extension.window.strategy import SlidingWindowStrategy
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.spi import last_of
from dsv2.state import StateDeclaration, StateTtl, ValueStateDeclaration


@dataclass(frozen=True, slots=True)
class Ranking:
    """An order of records.

    Attributes:
        by: The field; None: the timestamp.
        descending: Whether the greatest value comes first.
        latest_first: Whether of records with the same value the latest comes first.
    """

    by: str | None
    descending: bool
    latest_first: bool = False

    def __str__(self) -> str:
        order = "descending" if self.descending else "ascending"
        return f"by {self.by or 'timestamp'}, {order}, {'latest' if self.latest_first else 'earliest'} first"

    def first(self, rows: pa.Table, of: Numbers, field: str, count: int) -> tuple[pa.Table, Numbers]:
        """Return the first ``count`` rows of each segment, and the numbers of their keys.

        Args:
            rows: The rows, in the order of arrival.
            of: The numbers of their keys.
            field: The field by which they are ranked.
            count: The number of rows to return.
        """
        codes = [codes_of(rows[field], descending=self.descending)]
        if self.latest_first:
            codes.append(-np.arange(len(of)))
        order = sorting(of, *codes)
        order = order[ranks(of[order]) < count]
        return rows.take(pa.array(order)), of[order]


class FirstOrLast(KeyedOperator[T, T], Generic[T]):
    """Emits each record that is the first or last one of its key so far. State is the value by which they are compared.

    Args:
        kind: The class of the records.
        key_names: The fields of the key.
        by: The field; None: the timestamp.
        is_last: Whether it is the last one. A record with the same value as the last one replaces it.
        ttl: The time to live of the state of a key, after its last change.
    """

    def __init__(
        self, kind: type[T], key_names: Sequence[str], by: str | None, is_last: bool, ttl: StateTtl | None
    ) -> None:
        super().__init__(kind, key_names, kind)
        self.by = by
        self.is_last = is_last
        field, field_type = ("timestamp", int) if by is None else (by, (field_types(kind) or {})[by])
        self._field = field
        self._state = ValueStateDeclaration(
            f"{'last' if is_last else 'first'} by {by or 'timestamp'}",
            derived_class(kind, f"by_{field}", ((field, field_type),)),
            ttl=ttl,
        )

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._state]

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        names = {*self.key_names} | ({self.by} if self.by is not None else set())
        table = table_of(batch.records, self.kind, names)
        keys, values = self._keys_of(table), self._values(table, batch)
        state, found = ctx.keyed_state(self._state), ctx.columns.find(keys)
        has_state = state.contains(keys).to_numpy(zero_copy_only=False)
        before = in_one_piece(state.get(keys)[self._field])
        codes = codes_of(pa.concat_arrays([before, values]), descending=not self.is_last)
        becomes = self._become_greatest(found.places, codes[len(values) :], codes[: len(values)], has_state)
        chosen = np.flatnonzero(becomes)
        if not len(chosen):
            return
        latest = np.full(len(found.keys), -1, np.int64)
        latest[found.places[chosen]] = chosen  # numpy assigns the last one of a repeated place
        changed = np.flatnonzero(latest >= 0)
        state.put_distinct(found.keys.take(changed), {self._field: values.take(pa.array(latest[changed]))})
        output.collect_batch(batch if len(chosen) == len(values) else chosen_records(batch, pa.array(becomes)))

    def _become_greatest(self, places: Numbers, codes: Numbers, before: Numbers, has_state: Numbers) -> Numbers:
        """Return which records come after all records of their key before them."""
        order = sorting(places)
        of, codes, before, has_state = places[order], codes[order], before[order], has_state[order]
        first = heads(of)
        first_known = first & has_state
        so_far = greatest(of, np.where(first_known, np.maximum(before, codes), codes))
        previous = np.where(first, before, np.concatenate([so_far[:1], so_far[:-1]]))
        is_later = codes >= previous if self.is_last else codes > previous
        becomes = np.empty(len(order), np.bool_)
        becomes[order] = is_later | (first & ~has_state)
        return becomes

    def _values(self, table: pa.Table, batch: RecordBatch[Any]) -> pa.Array:
        if self.by is None:
            return pa.array(times_or_least(batch))
        return in_one_piece(table[self.by])


@dataclass(frozen=True, slots=True)
class RankedFields:
    """The fields of a result that are not those of the record; empty: none.

    Attributes:
        rank: That of the rank, from 1.
        start: That of the start of the window, in ms.
        end: That of its end.
    """

    rank: str = ""
    start: str = ""
    end: str = ""


class RankedWindows(KeyedOperator[IN, OUT], EventTimeProcessFunction, Generic[IN, OUT]):
    """Emits the first ``count`` records of each key and window when event time has reached its end, in their order.

    Args:
        kind: The class of the records.
        key_names: The fields of the key.
        result: The class of the results.
        strategy: The windows.
        count: The number of records.
        ranking: The order.
        fields: The fields of the result that are not those of the record.
    """

    def __init__(
        self,
        kind: type[IN],
        key_names: Sequence[str],
        result: type[OUT],
        strategy: SlidingWindowStrategy,
        count: int,
        ranking: Ranking,
        fields: RankedFields,
    ) -> None:
        super().__init__(kind, key_names, result)
        self.strategy = strategy
        self.count = count
        self.ranking = ranking
        self.fields = fields
        self._stored: type[Any]
        self._stored, self._time = (kind, "") if ranking.by is not None else with_time(kind)

    @property
    def record_types(self) -> tuple[type, ...]:
        return self.kind, self.result, self._stored

    @property
    def state_layout(self) -> str:
        return f"{self.strategy.layout}, which hold {self.contents}"

    @property
    def contents(self) -> str:
        return f"the first {self.count} records {self.ranking}"

    def dsv2_keyed_columns(self, environment: ColumnsEnvironment, fail: Any) -> ListPanes:
        size = self.strategy.size
        return ListPanes(self._stored, lambda slot: last_of(slot, size), environment, fail)

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table = table_of(batch.records, self.kind)
        times, event_time = times_of(batch), ctx.event_timers.current_time()
        if self._time:
            table = table.append_column(self._time, pa.array(times))
        if len(times) and times.min() <= event_time:
            late = int(np.count_nonzero(late_records(self.strategy, times, event_time)))
            if late:
                ctx.metric_group.counter("late_records_dropped").inc(late)
        panes: ListPanes = ctx.columns
        for slot, places in rows_by_window(self.strategy, times, event_time):
            part = table if places is None else table.take(pa.array(places))
            keys = self._keys_of(part)
            rows, of = panes.get(slot, keys).followed_by(part)
            panes.replace(slot, keys, *self.ranking.first(rows, of, self.ranking.by or self._time, self.count))

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        panes: ListPanes = ctx.columns
        for slot in panes.due(timestamp):
            end = last_of(slot, self.strategy.size) + 1
            for rows, of in panes.contents(slot):
                start = self.strategy.start_of(slot)
                records = records_of(self._results(rows, of, start, end), self.result)
                stamps = ArrowWholeNumbers(pa.array(np.full(len(records), end - 1, np.int64)))
                output.collect_batch(RecordBatch(records, stamps))
            panes.drop(slot)

    def _results(self, rows: pa.Table, of: Numbers, start: int, end: int) -> pa.Table:
        further = {
            self.fields.rank: ranks(of) + 1,
            self.fields.start: np.full(len(of), start, np.int64),
            self.fields.end: np.full(len(of), end, np.int64),
        }
        names = schema_of(self.result).names
        return pa.table({name: pa.array(further[name]) if name in further else rows[name] for name in names})


def check_order(kind: type[Any], by: str | None) -> str | None:
    """Return why records of ``kind`` cannot be ordered by a field; None if they can be."""
    if by is None:
        return None
    schema = schema_of(kind)
    if by not in schema.names:
        return f"{kind.__qualname__} has no field {by!r}, only {', '.join(schema.names)}."
    if pa.types.is_list(schema.field(by).type):
        return f"{by!r} of {kind.__qualname__} is a list, which has no order."
    return None
