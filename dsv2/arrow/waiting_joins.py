"""Joins on columns in intervals and in windows, whose rows wait for partners until event time excludes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dsv2.aggregates.field_types import field_types
from dsv2.arrow.aggregates import times_of
from dsv2.arrow.column_join import NONE, ColumnJoin, Declared, in_order
from dsv2.arrow.encoding import Numbers
from dsv2.arrow.keyed.lists import ArrowKeyedRows
from dsv2.arrow.records import ArrowWholeNumbers, table_of
from dsv2.arrow.schema import schema_of
from dsv2.arrow.segments import bounds, first_at_least, heads, matches, ranges, sorting
from dsv2.arrow.windows import late_records, rows_by_window
from dsv2.base.derived_classes import derived_class, unused_name
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.extension.join.functions import JoinType
from dsv2.extension.window.strategy import SlidingWindowStrategy
from dsv2.model.record_batch import RecordBatch
from dsv2.state import StateDeclarations
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN


class WaitingJoin(ColumnJoin, EventTimeProcessFunction, ABC):
    """Base class of joins whose records wait for partners until event time excludes them.

    Args:
        join: The join.
        added: The fields that stored rows have in addition.
    """

    def __init__(self, join: Declared, added: Mapping[str, type[Any]]) -> None:
        taken = {name for kind in join.kinds for name in field_types(kind) or ()}
        self._added = [unused_name(name, taken) for name in added]
        fields = dict(zip(self._added, added.values(), strict=True))
        states = [
            StateDeclarations.list_state(name, _stored(kind, "_".join(added), fields))
            for name, kind in zip(("left", "right"), join.kinds, strict=True)
        ]
        super().__init__(join, states)

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        """Rows are processed with their timers."""

    def on_event_timers(self, timers: pa.Table, output: Any, ctx: Any) -> None:
        """Called with the timers that are due: those of keys with rows that wait no longer."""
        keys = timers.columns[: len(self.join.names[0])]
        self._fire(keys, ctx.event_timers.current_time(), output, ctx)

    @abstractmethod
    def _fire(self, keys: Sequence[pa.ChunkedArray], now: int, output: Any, ctx: Any) -> None:
        """Process the rows of ``keys`` that wait no longer at event time ``now``."""

    def _drop_late(self, table: pa.Table, times: Numbers, is_late: Numbers, ctx: Any) -> tuple[pa.Table, Numbers]:
        """Return the records that are not late, and count the others."""
        late = int(np.count_nonzero(is_late))
        if not late:
            return table, times
        ctx.metric_group.counter("late_records_dropped").inc(late)
        kept = np.flatnonzero(~is_late)
        return table.take(pa.array(kept)), times[kept]

    def _with(self, table: pa.Table, *added: Numbers) -> pa.Table:
        """The rows of records, as they are stored."""
        for name, column in zip(self._added, added, strict=True):
            table = table.append_column(name, pa.array(column))
        return table

    def _column(self, number: int, rows: pa.Table) -> Numbers:
        """A column that stored rows have in addition."""
        column: Numbers = rows[self._added[number]].to_numpy()
        return column


class IntervalColumns(WaitingJoin):
    """Records with timestamps in an interval are partners.

    Args:
        join: The join.
        lower: The first right timestamp, in ms relative to the left one.
        upper: The last one, or the field of the left records with it.
    """

    def __init__(self, join: Declared, lower: int, upper: int | str) -> None:
        super().__init__(join, {"time": int, "matched": bool})
        self._lower, self._upper = lower, upper
        self._existence = join.join_type in (JoinType.SEMI, JoinType.ANTI)
        self._emits_unmatched = (
            join.join_type in (JoinType.LEFT, JoinType.FULL, JoinType.ANTI),
            join.join_type in (JoinType.RIGHT, JoinType.FULL),
        )

    @property
    def state_layout(self) -> str:
        return f"the rows that wait for partners in {self.join.join_type.name} interval joins"

    def dsv2_process_side(self, side: int, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        now, times = ctx.event_timers.current_time(), times_of(batch)
        table, times = self._drop_late(table_of(batch.records, self.join.kinds[side]), times, times <= now, ctx)
        if not len(times):
            return
        keys = self._keys(side, table)
        stored = self._in_order_of_time(self._lists(1 - side, ctx).get(keys))
        own, partners = self._partners(side, table, times, stored)
        self._join(side, (table, times), stored, (own, partners), output)
        self._mark(1 - side, keys, stored, partners, ctx)
        matched = np.zeros(len(times), np.bool_)
        matched[own] = True
        waits = self._ends(side, table, times) > now
        if self._emits_unmatched[side]:
            self._emit_unmatched(side, table, np.flatnonzero(~waits & ~matched), times, output)
        if self._existence and side == 0:
            waits &= ~matched
        chosen = np.flatnonzero(waits)
        if len(chosen):
            taken = pa.array(chosen)
            row = self._with(table.take(taken), times[chosen], matched[chosen])
            self._store(side, [key.take(taken) for key in keys], row, now, ctx)

    def _ends(self, side: int, rows: pa.Table, times: Numbers) -> Numbers:
        """The last times of partners of rows, which are records or stored."""
        if side == 1:
            return _shifted(times, -self._lower)
        if isinstance(self._upper, int):
            return _shifted(times, self._upper)
        ends: Numbers = rows[self._upper].to_numpy()
        return ends

    def _in_order_of_time(self, stored: ArrowKeyedRows) -> ArrowKeyedRows:
        order = sorting(stored.of, self._column(0, stored.rows))
        return replace(stored, rows=stored.rows.take(pa.array(order)), of=stored.of[order])

    def _partners(self, side: int, table: pa.Table, times: Numbers, stored: ArrowKeyedRows) -> tuple[Numbers, Numbers]:
        """The records and the stored rows that are partners."""
        segments = bounds(stored.of, stored.count)
        first, high = segments[stored.of_keys], segments[stored.of_keys + 1]
        stored_times = self._column(0, stored.rows)
        earliest = self._lower if side == 0 else -self._upper if isinstance(self._upper, int) else None
        if earliest is not None:
            first = first_at_least(stored_times, first, high, _shifted(times, earliest))
        ends = self._ends(side, table, times)
        last = np.where(ends == LONG_MAX, high, first_at_least(stored_times, first, high, _shifted(ends, 1)))
        if earliest is not None and earliest > 0:
            last = np.where(times > LONG_MAX - earliest, first, last)
        partners, own = ranges(first, last)
        if earliest is None:
            open_ = self._ends(0, stored.rows, stored_times)[partners] >= times[own]
            partners, own = partners[open_], own[open_]
        return own, partners

    def _join(
        self,
        side: int,
        batch: tuple[pa.Table, Numbers],
        stored: ArrowKeyedRows,
        pairs: tuple[Numbers, Numbers],
        output: Any,
    ) -> None:
        (table, times), (own, partners) = batch, pairs
        if not len(own) or self.join.join_type is JoinType.ANTI:
            return
        stored_times = self._column(0, stored.rows)
        if self._existence:
            _, first = np.unique(own if side == 0 else partners, return_index=True)
            first.sort()
            own, partners = own[first], partners[first]
        stamps = ArrowWholeNumbers(pa.array(np.maximum(times[own], stored_times[partners])))
        rows, places = in_order(side, (table, own), (stored.rows, partners))
        if self._existence:
            places = places[0], np.full(len(own), NONE)
        self._emit(output, rows, places, stamps)

    def _mark(self, side: int, keys: Any, stored: ArrowKeyedRows, partners: Numbers, ctx: Any) -> None:
        """Mark the stored rows that have found partners, or remove them."""
        removes, marks = self._existence and side == 0, self._emits_unmatched[side]
        if not len(partners) or not (removes or marks):
            return
        matched = self._column(1, stored.rows).copy()
        if matched[partners].all():
            return
        matched[partners] = True
        rows, of = stored.rows, stored.of
        if removes:
            kept = np.flatnonzero(~matched)
            rows, of = rows.take(pa.array(kept)), of[kept]
        else:
            place = rows.schema.get_field_index(self._added[1])
            rows = rows.set_column(place, self._added[1], pa.array(matched))
        self._lists(side, ctx).put(keys, rows, of)

    def _store(self, side: int, keys: Any, added: pa.Table, now: int, ctx: Any) -> None:
        lists = self._lists(side, ctx)
        if self._existence and side == 1:  # equal times are as good as one
            rows, of = lists.get(keys).followed_by(added)
            times = self._column(0, rows)
            order = sorting(of, times)
            order = order[self._ends(side, rows, times)[order] > now]
            of, times = of[order], times[order]
            distinct = heads(of) | np.concatenate([np.ones(min(len(of), 1), np.bool_), times[1:] != times[:-1]])
            lists.put(keys, rows.take(pa.array(order[distinct])), of[distinct])
        else:
            lists.append(keys, added)
        ends = self._ends(side, added, self._column(0, added))
        if not self._emits_unmatched[side] and isinstance(self._upper, int):  # few timers remove many rows
            width = self._upper - self._lower + 1
            ends = _shifted(ends, width - 1) // width * width
        ctx.event_timers.register(keys, np.maximum(ends, now + 1))

    def _fire(self, keys: Sequence[pa.ChunkedArray], now: int, output: Any, ctx: Any) -> None:
        for side in (0, 1):
            lists = self._lists(side, ctx)
            stored = lists.get(keys)
            times = self._column(0, stored.rows)
            ends = self._ends(side, stored.rows, times)
            is_due = ends <= now
            if not is_due.any():
                continue
            if self._emits_unmatched[side]:
                unmatched = np.flatnonzero(is_due & ~self._column(1, stored.rows))
                unmatched = unmatched[np.argsort(times[unmatched], kind="stable")]
                self._emit_unmatched(side, stored.rows, unmatched, np.maximum(times, ends), output)
            kept = np.flatnonzero(~is_due)
            lists.put(keys, stored.rows.take(pa.array(kept)), stored.of[kept])

    def _emit_unmatched(self, side: int, rows: pa.Table, chosen: Numbers, times: Numbers, output: Any) -> None:
        missing = np.full(len(chosen), NONE)
        tables, places = in_order(side, (rows, chosen), (schema_of(self.join.kinds[1 - side]).empty_table(), missing))
        self._emit(output, tables, places, ArrowWholeNumbers(pa.array(times[chosen])))


class WindowJoinColumns(WaitingJoin):
    """Records in the same window are partners. A row is stored for each window of a record."""

    def __init__(self, join: Declared, strategy: SlidingWindowStrategy) -> None:
        super().__init__(join, {"window": int})
        self.strategy = strategy

    @property
    def state_layout(self) -> str:
        return f"{self.strategy.layout}, as rows, for {self.join.join_type.name} joins"

    def dsv2_process_side(self, side: int, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        now, times = ctx.event_timers.current_time(), times_of(batch)
        late = late_records(self.strategy, times, now)
        table, times = self._drop_late(table_of(batch.records, self.join.kinds[side]), times, late, ctx)
        everywhere = np.arange(len(times))
        windows = [
            (start, everywhere if places is None else places)
            for start, places in rows_by_window(self.strategy, times, now)
        ]
        if not len(times) or not windows:
            return
        starts = np.repeat([start for start, _ in windows], [len(places) for _, places in windows])
        rows = self._with(table.take(pa.array(np.concatenate([places for _, places in windows]))), starts)
        keys = self._keys(side, rows)
        self._lists(side, ctx).append(keys, rows)
        ctx.event_timers.register(keys, self._last_of(starts))

    def _last_of(self, starts: Numbers) -> Numbers:
        """The last ms of windows."""
        return _shifted(starts, self.strategy.size) - 1

    def _fire(self, keys: Sequence[pa.ChunkedArray], now: int, output: Any, ctx: Any) -> None:
        due = []
        for side in (0, 1):
            lists = self._lists(side, ctx)
            stored = lists.get(keys)
            is_due = self._last_of(self._column(0, stored.rows)) <= now
            chosen, kept = np.flatnonzero(is_due), np.flatnonzero(~is_due)
            due.append((stored.rows.take(pa.array(chosen)), stored.of[chosen]))
            lists.put(keys, stored.rows.take(pa.array(kept)), stored.of[kept])
        (left, left_of), (right, right_of) = due
        starts = self._column(0, left), self._column(0, right)
        of, count = _numbered(starts, (left_of, right_of))
        order = np.argsort(of[1], kind="stable")
        own, partners = matches(of[0], of[1][order], count)
        places = self._pairs(own, order[partners], (len(left), len(right)))
        window = np.where(places[0] >= 0, _at(starts[0], places[0]), _at(starts[1], places[1]))
        in_time = np.argsort(window, kind="stable")
        places, window = (places[0][in_time], places[1][in_time]), window[in_time]
        ends = _shifted(window, self.strategy.size)
        self._emit(output, (left, right), places, ArrowWholeNumbers(pa.array(ends - 1)), (window, ends))

    def _pairs(self, left: Numbers, right: Numbers, counts: tuple[int, int]) -> tuple[Numbers, Numbers]:
        """The results: places of pairs, with those of rows without a partner if the join type wants them."""
        kind = self.join.join_type
        alone = [np.setdiff1d(np.arange(count), side) for count, side in zip(counts, (left, right), strict=True)]
        if kind in (JoinType.SEMI, JoinType.ANTI):
            left = np.unique(left) if kind is JoinType.SEMI else alone[0]
            return left, np.full(len(left), NONE)
        parts = [(left, right)]
        if kind in (JoinType.LEFT, JoinType.FULL):
            parts.append((alone[0], np.full(len(alone[0]), NONE)))
        if kind in (JoinType.RIGHT, JoinType.FULL):
            parts.append((np.full(len(alone[1]), NONE), alone[1]))
        lefts, rights = zip(*parts, strict=True)
        return np.concatenate(lefts), np.concatenate(rights)


def _numbered(windows: tuple[Numbers, Numbers], keys: tuple[Numbers, Numbers]) -> tuple[tuple[Numbers, Numbers], int]:
    """Number the pairs of a window and a key of both sides, and return how many there are."""
    both = np.stack([np.concatenate(windows), np.concatenate(keys)])
    found, numbers = np.unique(both, axis=1, return_inverse=True)
    numbers = numbers.reshape(-1)
    return (numbers[: len(keys[0])], numbers[len(keys[0]) :]), found.shape[1]


def _at(values: Numbers, places: Numbers) -> Numbers:
    """The values at ``places``; any value for ``NONE``."""
    return values[places] if len(values) else np.zeros(len(places), np.int64)


def _shifted(times: Numbers, by: int) -> Numbers:
    """The times plus ``by``, within the range of times."""
    shifted = times + np.int64(by)
    if by < 0:
        return np.where(times < LONG_MIN - by, LONG_MIN, shifted)
    return np.where(times > LONG_MAX - by, LONG_MAX, shifted)


def _stored(kind: type, what: str, fields: Mapping[str, Any]) -> type[Any]:
    """The class of stored rows: the fields of a record, and more."""
    return derived_class(kind, f"with_{what}", (*(field_types(kind) or {}).items(), *fields.items()))
