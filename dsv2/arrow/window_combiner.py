"""Combines records of windows before the exchange, so that fewer are sent.

A partial result has the key and the accumulators of some records, and the start of the windows' slide as timestamp: all
of its records are in the same windows. Only aggregates that do not depend on the order of records are combined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from dsv2.aggregates import Aggregate, Count, Max, Mean, Min, Sum
from dsv2.aggregates.field_types import field_types
from dsv2.aggregates.result import DeclaredResult
from dsv2.aggregates.result_field import Fold
from dsv2.arrow.aggregate_columns import Arrays
from dsv2.arrow.aggregates import WindowAggregate, WindowColumns, times_of
from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.functions import process_batch_failure
from dsv2.arrow.keyed.folding import Groups, fits_in_sum, fold
from dsv2.arrow.records import ArrowWholeNumbers, records_of, table_of
from dsv2.arrow.schema import schema_of
from dsv2.base.columnar import types_of_key
from dsv2.base.derived_classes import derived_class
from dsv2.base.type_variables import IN, OUT
from dsv2.extension.window.strategy import SlidingWindowStrategy, TimeType
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import BatchFunction, EmitBatch, FailedRecordError

_TIME, _RECORDS = "time", "records"
_SAMPLE = 4096


def combined(
    result: DeclaredResult[OUT], kind: type[IN], key_names: Sequence[str], strategy: SlidingWindowStrategy
) -> tuple[CombineColumns[IN], attrgetter[Any], CombinedColumns[OUT]] | None:
    """Return the function before the exchange, the key selector of what it emits, and the function after it.

    None: the records cannot be combined. The arguments are those of ``WindowColumns``.
    """
    sent = [(name, fold) for name, part in result.partial.aggregates.items() for fold in _folds(part, kind)]
    by_clock = strategy.time_type is TimeType.PROCESSING
    if by_clock or strategy.size % strategy.slide or len(sent) < len(result.partial.empty):
        return None
    keys = {f"key_{number}": one for number, one in enumerate(types_of_key(key_names, field_types(kind) or {}))}
    fields = {f"sent_{number}": int | None for number in range(len(sent))}
    name = f"combined_{len(sent)}_by_{'_'.join(key_names)}"
    made = derived_class(kind, name, (*keys.items(), *fields.items(), (_RECORDS, int)))
    before = CombineColumns(result, kind, key_names, strategy, made, sent)
    after = CombinedColumns[OUT](result, made, list(keys), strategy, dict(zip(fields, sent, strict=True)))
    return before, attrgetter(*keys), after


def _folds(part: Aggregate, kind: type) -> Sequence[Fold]:
    """The accumulators of an aggregate, if it does not depend on the order of records and is exact."""
    if isinstance(part, Count):
        return [part]
    if not isinstance(part, Sum | Min | Max | Mean) or not pa.types.is_int64(schema_of(kind).field(part.field).type):
        return []
    if isinstance(part, Mean):
        return [Sum(part.field, filter=part.filter), Count(part.field, filter=part.filter)]
    return [part]


class CombineColumns(WindowAggregate[IN, Any], BatchFunction, Generic[IN]):
    """Emits the partial results of each batch. It is stateless, so it can run in the tasks that read the source.

    Args:
        result: As for ``WindowAggregate``.
        kind: Likewise.
        key_names: Likewise.
        strategy: Likewise.
        made: The class of the partial results.
        sent: The accumulators, each with its field of the result.
    """

    dsv2_inherits_parallelism = True
    dsv2_part_of = "aggregate"
    keeps_nothing = True

    def __init__(
        self,
        result: DeclaredResult[Any],
        kind: type[IN],
        key_names: Sequence[str],
        strategy: SlidingWindowStrategy,
        made: type[Any],
        sent: Sequence[tuple[str, Fold]],
    ) -> None:
        super().__init__(result, kind, key_names, strategy)
        self._made = made
        names = schema_of(made).names
        self._keys, self._sums = names[: len(key_names)], dict(zip(names[len(key_names) :], sent, strict=False))
        self._hows = {**{name: fold.how for name, (_, fold) in self._sums.items()}, _RECORDS: "sum"}

    @property
    def record_types(self) -> tuple[type, type]:
        return self.kind, self._made

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        output.collect_batch(self._combined(batch))

    def process_record_batch(self, batch: RecordBatch[Any], emit: EmitBatch) -> None:
        try:
            result = self._combined(batch)
        except Exception as error:
            raise FailedRecordError(batch.records) from process_batch_failure(error)
        emit(result)

    def _combined(self, batch: RecordBatch[Any]) -> RecordBatch[Any]:
        table, times = table_of(batch.records, self.kind, self.fields), times_of(batch)
        times = times - (times - self.strategy.offset) % self.strategy.slide
        keys = dict(zip(self._keys, self._keys_of(table), strict=True))
        chosen = self._chosen(table)
        sums = {field: self._inputs_of(table, fold, chosen.get(name))[0] for field, (name, fold) in self._sums.items()}
        partial = pa.table({**keys, **sums, _RECORDS: np.ones(len(times), np.int64), _TIME: times})
        if self._repeats(partial) and self._fits(partial):
            partial = self._grouped(partial)
        stamps = ArrowWholeNumbers(partial[_TIME].combine_chunks())
        return RecordBatch(records_of(partial.drop_columns([_TIME]), self._made), stamps)

    def _repeats(self, partial: pa.Table) -> bool:
        """Return whether enough of the first records share key and windows, so that combining saves something."""
        first = partial.slice(0, _SAMPLE)
        different: int = first.group_by([*self._keys, _TIME], use_threads=False).aggregate([]).num_rows
        return 2 * different <= len(first)

    def _fits(self, partial: pa.Table) -> bool:
        """Return whether no sum can exceed 64 bits. If one may, the sums are checked after the exchange."""
        sums = (field for field, (_, fold) in self._sums.items() if isinstance(fold, Sum))
        return all(fits_in_sum(partial[field].fill_null(0).to_numpy()) for field in sums)

    def _grouped(self, partial: pa.Table) -> pa.Table:
        hows = list(self._hows.items())
        grouped = partial.group_by([*self._keys, _TIME], use_threads=False).aggregate(hows)
        renamed = {f"{field}_{how}": field for field, how in hows}
        return grouped.rename_columns([renamed.get(name, name) for name in grouped.column_names])


class CombinedColumns(WindowColumns[Any, OUT], Generic[OUT]):
    """Aggregates partial results.

    Args:
        result: As for ``WindowColumns``.
        kind: The class of the partial results.
        key_names: Their keys.
        strategy: As for ``WindowColumns``.
        sent: Their accumulators, each with its field of the result.
    """

    def __init__(
        self,
        result: DeclaredResult[OUT],
        kind: type[Any],
        key_names: Sequence[str],
        strategy: SlidingWindowStrategy,
        sent: Mapping[str, tuple[str, Fold]],
    ) -> None:
        super().__init__(result, kind, key_names, strategy)
        self.fields = None
        self._sent = sent

    def _inputs(self, table: pa.Table) -> dict[str, Arrays]:
        return {field: [in_one_piece(table[field])] for field in self._sent}

    def _folded(self, inputs: Mapping[str, Arrays], current: Arrays, groups: Groups) -> Arrays:
        return [
            fold(part.how, old, inputs[field][0], groups)
            for old, (field, (_, part)) in zip(current, self._sent.items(), strict=True)
        ]

    def _records(self, table: pa.Table, chosen: Numbers) -> int:
        return int(table[_RECORDS].to_numpy()[chosen].sum())
