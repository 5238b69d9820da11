"""The first ``n`` records of each key so far, as changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.keyed_operator import KeyedOperator, times_or_least, with_time
from dsv2.arrow.ranking import Ranking
from dsv2.arrow.records import ArrowWholeNumbers, records_of, table_of
from dsv2.arrow.schema import fitted, schema_of, table_to_rows
from dsv2.arrow.segments import NONE, bounds, ranks, sorting
from dsv2.base.type_variables import IN
from dsv2.model.change import Change, ChangeKind
from dsv2.model.record_batch import RecordBatch, Timestamps
from dsv2.state import ListStateDeclaration, StateDeclaration, StateTtl
from dsv2.watermark.event_time import LONG_MIN

_KINDS = tuple(ChangeKind)
_INSERT, _BEFORE, _AFTER, _DELETE = range(4)


class RunningTop(KeyedOperator[IN, Any]):
    """Emits the changes of the first ``count`` records of each key: those between before and after each batch.

    With a rank, the records of a key are versions of the ranks, and records are updated. Without, they are added and
    removed.

    Args:
        kind: The class of the records.
        key_names: The fields of the key.
        result: The class of the results.
        count: The number of records.
        ranking: The order.
        rank: The field of ``result`` for the rank; empty: none.
        change: The field of ``result`` for the kind of the change; empty: ``Change`` objects are emitted.
        ttl: The time to live of the records of a key, after the last change.
    """

    def __init__(
        self,
        kind: type[IN],
        key_names: Sequence[str],
        result: type[Any],
        count: int,
        ranking: Ranking,
        rank: str,
        change: str,
        ttl: StateTtl | None,
    ) -> None:
        super().__init__(kind, key_names, result)
        self.count = count
        self.ranking = ranking
        self.rank = rank
        self.change = change
        self._stored: type[Any]
        self._stored, self._time = (kind, "") if ranking.by else with_time(kind)
        self._state = ListStateDeclaration(f"first {count} {ranking}", self._stored, ttl=ttl)

    @property
    def record_types(self) -> tuple[type, ...]:
        classes = (self.kind, self._stored, self.result)
        return classes if self.change else (*classes, ChangeKind, Change)

    @property
    def column_classes(self) -> Collection[type]:
        return self.kind, self.result, self._stored

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._state]

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table, times = table_of(batch.records, self.kind), times_or_least(batch)
        if self._time:
            table = table.append_column(self._time, pa.array(times))
        keys, state = self._keys_of(table), ctx.keyed_state(self._state)
        found = state.get(keys)
        rows = pa.concat_tables([found.rows, table.select(found.rows.column_names)])
        rows = rows.combine_chunks()  # because rows are taken from it twice
        of = np.concatenate([found.of, found.of_keys])
        order = self.ranking.first(rows, of, self._time, self.count)
        stored = len(found.of)
        if (order < stored).all():
            return
        changes = self._ranked if self.rank else self._exchanged
        places, kinds, numbers, ranked = changes(found.of, of, order, found.count)
        changed, new = np.unique(numbers), np.full(found.count, NONE, np.int64)
        new[changed] = np.arange(len(changed))
        order = order[new[of[order]] != NONE]
        kept = rows.take(pa.array(order))
        distinct = ctx.columns.find(keys).keys.take(changed)
        state.put_distinct(distinct, [in_one_piece(column) for column in kept.columns], new[of[order]])
        latest = np.full(found.count, LONG_MIN, np.int64)
        np.maximum.at(latest, found.of_keys, times)
        stamps = None if batch.timestamps is None else _stamps(latest[numbers])
        self._emit(rows.take(pa.array(places)), kinds, ranked, stamps, output)

    def _exchanged(
        self, of_stored: Numbers, of: Numbers, order: Numbers, count: int
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """The changes without ranks: the places of the rows, the kinds, and the numbers of the keys."""
        stored = len(of_stored)
        stays = np.zeros(stored, np.bool_)
        stays[order[order < stored]] = True
        removed, added = np.flatnonzero(~stays), order[order >= stored]
        places = np.concatenate([removed, added])
        kinds = np.repeat([_DELETE, _INSERT], [len(removed), len(added)])
        by_key = sorting(of[places])
        places = places[by_key]
        return places, kinds[by_key], of[places], np.zeros(len(places), np.int64)

    def _ranked(
        self, of_stored: Numbers, of: Numbers, order: Numbers, count: int
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """The changes of ranks, with the rank of each."""
        numbers, rank = of[order], ranks(of[order])
        first = bounds(of_stored, count)
        before = first[numbers] + rank
        before = np.where(before < first[numbers + 1], before, NONE)
        changes = before != order
        numbers, rank, before, after = numbers[changes], rank[changes], before[changes], order[changes]
        replaces = before != NONE
        places = np.concatenate([before[replaces], after])
        kinds = np.concatenate([np.full(np.count_nonzero(replaces), _BEFORE), np.where(replaces, _AFTER, _INSERT)])
        numbers, rank = np.concatenate([numbers[replaces], numbers]), np.concatenate([rank[replaces], rank])
        by_key = sorting(numbers, rank)  # stable, so that the former version is the first
        return places[by_key], kinds[by_key], numbers[by_key], rank[by_key] + 1

    def _emit(self, rows: pa.Table, kinds: Numbers, ranked: Numbers, stamps: Timestamps, output: Any) -> None:
        further: dict[str, Any] = {}
        if self.rank:
            further[self.rank] = pa.array(ranked)
        if self.change:
            further[self.change] = pa.array(_KINDS, pa.string()).take(pa.array(kinds))
        names = schema_of(self.result).names
        table = pa.table({name: further[name] if name in further else rows[name] for name in names})
        if self.change:
            output.collect_batch(RecordBatch(records_of(table, self.result), stamps))
            return
        records = table_to_rows(fitted(table, self.result), self.result)
        changes = [Change(_KINDS[kind], record) for kind, record in zip(kinds.tolist(), records, strict=True)]
        output.collect_batch(RecordBatch(changes, stamps))


def _stamps(times: Numbers) -> Timestamps:
    if LONG_MIN in times:
        return [None if time == LONG_MIN else time for time in times.tolist()]
    return ArrowWholeNumbers(pa.array(times))
