"""The first or last record of each key, and the first ``n`` in windows, by a field or by time."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, get_args

import numpy as np
import pyarrow as pa

from dsv2.aggregates.field_types import field_types
from dsv2.arrow.aggregates import times_of
from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.keyed.panes import ListPanes
from dsv2.arrow.keyed_operator import KeyedOperator, times_or_least, with_time
from dsv2.arrow.records import ArrowWholeNumbers, chosen_records, records_of, table_of
from dsv2.arrow.schema import schema_of
from dsv2.arrow.segments import codes_of, combined, greatest, heads, ranks, shared_ranks, sorting
from dsv2.arrow.windows import late_records, rows_by_window
from dsv2.base.columnar import fields_read
from dsv2.base.derived_classes import derived_class
from dsv2.base.type_variables import IN, OUT, T
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.extension.window.strategy import SlidingWindowStrategy
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.spi import last_of
from dsv2.state import StateDeclaration, StateTtl, ValueStateDeclaration
from dsv2.streams.ranking import Ties


@dataclass(frozen=True, slots=True)
class Ranking:
    """An order of records.

    Attributes:
        by: The fields; none: the timestamp.
        descending: For each field whether the greatest value comes first.
        latest_first: Whether of records with the same values the latest comes first.
        ties: The ranks of records with the same values.
    """

    by: tuple[str, ...]
    descending: tuple[bool, ...]
    latest_first: bool = False
    ties: Ties = "row_number"

    def __str__(self) -> str:
        names = self.by or ("timestamp",)
        order = ", ".join(
            f"{name} {'descending' if down else 'ascending'}" for name, down in zip(names, self.descending, strict=True)
        )
        first = "latest" if self.latest_first else "earliest"
        ties = "" if self.ties == "row_number" else f", with {self.ties}"
        return f"by {order}, {first} first{ties}"

    @property
    def reversed(self) -> Ranking:
        """The order from the last record to the first."""
        return replace(self, descending=tuple(not down for down in self.descending), latest_first=not self.latest_first)

    def codes(self, columns: Mapping[str, pa.ChunkedArray] | pa.Table, time: str) -> Numbers:
        """Return whole numbers in the order of some rows. ``time`` is the column with the timestamps."""
        names = zip(self.by or (time,), self.descending, strict=True)
        return combined([codes_of(columns[name], descending=down) for name, down in names])

    def ranks(self, of: Numbers, codes: Numbers) -> Numbers:
        """Return the ranks of rows that are sorted, from 0. ``of`` are the numbers of their keys."""
        return ranks(of) if self.ties == "row_number" else shared_ranks(of, codes, dense=self.ties == "dense_rank")

    def first(self, rows: pa.Table, of: Numbers, time: str, count: int) -> Numbers:
        """Return the places of the rows whose rank is at most ``count``, by key and in their order.

        Args:
            rows: The rows, in the order of arrival.
            of: The numbers of their keys.
            time: The column with the timestamps.
            count: The last rank.
        """
        codes = self.codes(rows, time)
        order = sorting(of, codes, -np.arange(len(of))) if self.latest_first else sorting(of, codes)
        return order[self.ranks(of[order], codes[order]) < count]


class FirstOrLast(KeyedOperator[T, T], Generic[T]):
    """Emits each record that is the first or last one of its key so far. State has the values that are compared.

    Args:
        kind: The class of the records.
        key_names: The fields of the key.
        ranking: The order.
        is_last: Whether it is the last one. A record with the same values as the last one replaces it.
        ttl: The time to live of the state of a key, after its last change.
    """

    def __init__(
        self, kind: type[T], key_names: Sequence[str], ranking: Ranking, is_last: bool, ttl: StateTtl | None
    ) -> None:
        super().__init__(kind, key_names, kind)
        self.ranking = ranking
        self.is_last = is_last
        types = field_types(kind) or {}
        fields = tuple((name, types[name]) for name in ranking.by) or (("timestamp", int),)
        self._fields = tuple(name for name, _ in fields)
        order = ", ".join(
            f"{name} descending" if down else name for name, down in zip(self._fields, ranking.descending, strict=True)
        )
        self._state = ValueStateDeclaration(
            f"{'last' if is_last else 'first'} by {order}",
            derived_class(kind, f"by_{'_'.join(self._fields)}", fields),
            ttl=ttl,
        )

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._state]

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table = table_of(batch.records, self.kind, {*fields_read(self.key_names), *self.ranking.by})
        keys, values = self._keys_of(table), self._values(table, batch)
        state, found = ctx.keyed_state(self._state), ctx.columns.find(keys)
        has_state = state.contains(keys).to_numpy(zero_copy_only=False)
        before, count = state.get(keys), len(batch)
        both = {name: pa.chunked_array([*before[name].chunks, values[name]]) for name in self._fields}
        codes = self.ranking.codes(both, self._fields[0])
        codes = codes if self.is_last else np.invert(codes)
        becomes = self._become_greatest(found.places, codes[count:], codes[:count], has_state)
        chosen = np.flatnonzero(becomes)
        if not len(chosen):
            return
        latest = np.full(len(found.keys), -1, np.int64)
        latest[found.places[chosen]] = chosen  # numpy assigns the last one of a repeated place
        changed = np.flatnonzero(latest >= 0)
        places = pa.array(latest[changed])
        new = {name: column.take(places) for name, column in values.items()}
        state.put_distinct(found.keys.take(changed), new)
        output.collect_batch(batch if len(chosen) == count else chosen_records(batch, pa.array(becomes)))

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

    def _values(self, table: pa.Table, batch: RecordBatch[Any]) -> dict[str, pa.Array]:
        if not self.ranking.by:
            return {self._fields[0]: pa.array(times_or_least(batch))}
        return {name: in_one_piece(table[name]) for name in self._fields}


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
        self._stored, self._time = (kind, "") if ranking.by else with_time(kind)

    @property
    def record_types(self) -> tuple[type, ...]:
        return self.kind, self._stored, self.result

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
            chosen = self.ranking.first(rows, of, self._time, self.count)
            panes.replace(slot, keys, rows.take(pa.array(chosen)), of[chosen])

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
        ranked = self.ranking.ranks(of, self.ranking.codes(rows, self._time)) + 1
        further = {
            self.fields.rank: ranked,
            self.fields.start: np.full(len(of), start, np.int64),
            self.fields.end: np.full(len(of), end, np.int64),
        }
        names = schema_of(self.result).names
        return pa.table({name: pa.array(further[name]) if name in further else rows[name] for name in names})


def ranking_of(
    kind: type[Any],
    by: str | Sequence[str] | None,
    descending: bool | Sequence[bool],
    ties: Ties = "row_number",
) -> Ranking | str:
    """Return the order of records of ``kind`` by fields, or why they do not have it."""
    names = () if by is None else (by,) if isinstance(by, str) else tuple(by)
    schema = schema_of(kind)
    for name in names:
        if name not in schema.names:
            return f"{kind.__qualname__} has no field {name!r}, only {', '.join(schema.names)}."
        if pa.types.is_list(schema.field(name).type):
            return f"{name!r} of {kind.__qualname__} is a list, which has no order."
    if by is not None and (not names or len(names) != len({*names})):
        return f"by takes one or more different fields, not {by!r}."
    count = max(len(names), 1)
    directions = (descending,) * count if isinstance(descending, bool) else tuple(descending)
    if len(directions) != count or not all(isinstance(one, bool) for one in directions):
        return f"descending takes a bool, or one for each of the {count} fields, not {descending!r}."
    if ties not in get_args(Ties):
        return f"ties must be one of {', '.join(map(repr, get_args(Ties)))}, not {ties!r}."
    return Ranking(names, directions, ties=ties)
