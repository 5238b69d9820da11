"""Declared aggregates of session windows on columns.

The sessions of a key are a list of rows: a start, a last ms, and the aggregates of its records. A batch is merged into
them at once, so only aggregates that do not depend on the order of merging are computed here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.aggregates import Aggregate, Count, Last, Max, Mean, Min, Sum
from dsv2.aggregates.field_types import field_types
from dsv2.aggregates.result import DeclaredResult
from dsv2.arrow.aggregate_columns import ones
from dsv2.arrow.aggregates import ColumnAggregate, times_of
from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.keyed.folding import Groups, fold
from dsv2.arrow.keyed.keys import Keys
from dsv2.arrow.keyed.lists import ArrowKeyedLists
from dsv2.arrow.records import ArrowWholeNumbers, table_of
from dsv2.arrow.schema import names_without_none, schema_of
from dsv2.arrow.segments import greatest, heads, sorting
from dsv2.base.columnar import column_names
from dsv2.base.derived_classes import derived_class, unused_name
from dsv2.base.type_variables import IN, OUT
from dsv2.errors import ContractError
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.extension.window.strategy import SessionWindowStrategy
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import KeepsAggregates, KeptAggregates
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.watermark.event_time import LONG_MAX


def why_rows(result: DeclaredResult[Any], kind: type, strategy: SessionWindowStrategy) -> str | None:
    """Return why sessions are aggregated record by record; None if they are not.

    Their gap is not a field, or aggregates depend on the order in which they merge.
    """
    schema, required = schema_of(kind), names_without_none(kind)
    if not isinstance(strategy.gap, int):
        names = column_names(strategy.gap) or ()
        if len(names) != 1 or names[0] not in schema.names or not pa.types.is_int64(schema.field(names[0]).type):
            return "the gap of the sessions is not an operator.attrgetter of a field with whole numbers"
    for name, part in result.partial.aggregates.items():
        if not _hows(part) or any(pa.types.is_float64(schema.field(one).type) for one in part.inputs):
            return f"sessions merge, and {name!r} depends on the order of its values"
        if isinstance(part, Last) and (part.field not in required or part.filter is not None):
            return f"sessions merge, and {name!r} leaves out values"  # otherwise the last record is the merging one
    return None


def _hows(part: Aggregate) -> Sequence[str]:
    """The way to merge each accumulator of an aggregate, as values of records are; empty if there is none."""
    if isinstance(part, Mean):
        return "sum", "sum"
    return (part.how,) if isinstance(part, Count | Sum | Min | Max | Last) else ()


class SessionColumns(ColumnAggregate[IN, OUT], EventTimeProcessFunction, KeepsAggregates):
    """Emits the results of sessions when event time has passed their end.

    Args:
        result: As for ``ColumnAggregate``.
        kind: Likewise.
        key_names: Likewise.
        strategy: The sessions.
    """

    def __init__(
        self, result: DeclaredResult[OUT], kind: type[IN], key_names: Sequence[str], strategy: SessionWindowStrategy
    ) -> None:
        super().__init__(result, kind, key_names)
        self.strategy = strategy
        partial = result.partial
        fields = field_types(partial.kind) or {}
        hows = [how for part in partial.aggregates.values() for how in _hows(part)]
        self._hows = dict(zip(fields, hows, strict=True))
        self._gap_name = ""
        if not isinstance(strategy.gap, int):
            (self._gap_name,) = column_names(strategy.gap) or ("",)
            self.fields = None if self.fields is None else self.fields | {self._gap_name}
        self._start, self._last = unused_name("start", fields), unused_name("last", fields)
        bounds = ((self._start, int), (self._last, int))
        defaults = partial.kind._field_defaults
        stored = derived_class(result.kind, "sessions", (*bounds, *fields.items()), defaults)
        self._sessions = StateDeclarations.list_state("sessions", stored)

    @property
    def state_layout(self) -> str:
        return f"{self.strategy.layout}, as rows of {self.contents}"

    @property
    def contents(self) -> str:
        return "accumulators"

    @property
    def kept_aggregates(self) -> KeptAggregates:
        return KeptAggregates(self.result.declared, ())

    def prepare_records(self, records: Sequence[Any]) -> None:
        """Records are not processed one by one."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._sessions]

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table, times = table_of(batch.records, self.kind, self.fields), times_of(batch)
        keys, added, gap = self._keys_of(table), self._accumulators(table), self._gaps(table)
        sessions: ArrowKeyedLists[Any] = ctx.keyed_state(self._sessions)
        stored, known = sessions.get(keys), ctx.columns.find(keys).keys
        of = np.concatenate([stored.of, stored.of_keys])
        start = np.concatenate([stored.rows[self._start].to_numpy(), times])
        own_last = np.where(times > LONG_MAX - gap, LONG_MAX, times + gap) - 1  # as last_of
        last = np.concatenate([stored.rows[self._last].to_numpy(), own_last])
        columns = {
            name: pa.concat_arrays([in_one_piece(stored.rows[name]), column])
            for name, column in zip(self._hows, added, strict=True)
        }
        late = _late(of, start, last, ctx.event_timers.current_time())
        if late.any():
            ctx.metric_group.counter("late_records_dropped").inc(int(np.count_nonzero(late)))
            kept = np.flatnonzero(~late)
            of, start, last = of[kept], start[kept], last[kept]
            columns = {name: column.take(pa.array(kept)) for name, column in columns.items()}
        order = sorting(of, start)
        of, start, last = of[order], start[order], greatest(of[order], last[order])
        begins = heads(of)
        begins[1:] |= start[1:] > last[:-1] + 1
        places = np.empty(len(order), np.int64)
        places[order] = np.cumsum(begins) - 1
        first = np.flatnonzero(begins)
        groups = Groups(places, len(first))
        merged = {
            name: fold(how, pa.nulls(len(first), columns[name].type), columns[name], groups)
            for name, how in self._hows.items()
        }
        ends = np.append(first[1:], len(of))[: len(first)] - 1
        rows = pa.table({self._start: start[first], self._last: last[ends], **merged})
        sessions.put(keys, rows, of[first])
        self._set_timers(known, of[first], last[ends], ctx)

    def _gaps(self, table: pa.Table) -> Numbers | int:
        if not self._gap_name:
            return self.strategy.gap  # type: ignore[return-value]  # a number
        gaps = table[self._gap_name]
        if gaps.null_count or (len(table) and pc.min(gaps).as_py() < 1):
            raise ContractError(
                f"Gaps of sessions are whole numbers of at least 1 ms, but {self._gap_name!r} has others."
            )
        found: Numbers = gaps.to_numpy()
        return found

    def _accumulators(self, table: pa.Table) -> list[pa.Array]:
        """The accumulators of sessions of one record each."""
        found: list[pa.Array] = []
        for name, (values,) in self._inputs(table).items():
            found.append(values)
            if isinstance(self.columns[name].part, Mean):
                found.append(ones(values))
        return found

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        """Sessions are emitted with the timers of their keys."""

    def on_event_timers(self, timers: pa.Table, output: Any, ctx: Any) -> None:
        """Called with the timers that are due: those of keys with sessions that have ended."""
        keys, now = timers.columns[: len(self.key_names)], ctx.event_timers.current_time()
        sessions: ArrowKeyedLists[Any] = ctx.keyed_state(self._sessions)
        stored, known = sessions.get(keys), ctx.columns.find(keys).keys
        last = stored.rows[self._last].to_numpy()
        due, kept = np.flatnonzero(last <= now), np.flatnonzero(last > now)
        due = due[np.argsort(last[due], kind="stable")]
        rows = stored.rows.take(pa.array(due))
        place = np.empty(len(known), np.int64)
        place[stored.of_keys] = np.arange(len(stored.of_keys))
        of_sessions = pa.array(place[stored.of[due]])
        values = [in_one_piece(rows[name]) for name in self._hows]
        start, end = rows[self._start].to_numpy(), last[due] + 1
        records = self._results([in_one_piece(key.take(of_sessions)) for key in keys], values, start, end)
        output.collect_batch(RecordBatch(records, ArrowWholeNumbers(pa.array(last[due]))))
        sessions.put(keys, stored.rows.take(pa.array(kept)), stored.of[kept])
        self._set_timers(known, stored.of[kept], last[kept], ctx)

    @staticmethod
    def _set_timers(known: Keys, of: Numbers, last: Numbers, ctx: Any) -> None:
        """Let each key have one timer, for its first session to end. ``of``: the number of the key of each session."""
        first = np.flatnonzero(heads(of))
        if len(first):
            ctx.event_timers.put_distinct(known.take(of[first]), np.minimum.reduceat(last, first))


def _late(of: Numbers, start: Numbers, last: Numbers, event_time: int) -> Numbers:
    """Return which sessions, of a record each, have ended and merge with none before them.

    Those that merge are older than the open session, and may merge with further ones.
    """
    late = last <= event_time
    if not late.any():
        return late
    order = sorting(of)
    of, start, last, late = of[order], start[order], last[order], late[order]
    count = -1
    while count != (count := int(np.count_nonzero(late))):
        earliest = np.invert(greatest(of, np.invert(np.where(late, LONG_MAX, start))))  # up to each record
        late &= earliest > last + 1
    found = np.empty(len(of), np.bool_)
    found[order] = late
    return found
