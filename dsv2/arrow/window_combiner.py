"""Combines records of windows before the exchange, so that fewer are sent.

A partial result has the key and the aggregates of some records, and the start of the windows' slide as timestamp: all
of its records are in the same windows. Only aggregates that do not depend on the order of records are combined.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from operator import attrgetter
from typing import Any

import pyarrow as pa

from dsv2.aggregates import Aggregate, Count, Key, Max, Min, Part, Sum
from dsv2.aggregates.partial_results import counted
from dsv2.aggregates.result import DeclaredResult
from dsv2.arrow.aggregates import WindowAggregate, WindowColumns, times_of
from dsv2.arrow.functions import process_batch_failure
from dsv2.arrow.keyed.folding import fits_in_sum
from dsv2.arrow.records import ArrowWholeNumbers, records_of, table_of
from dsv2.arrow.schema import names_without_none, schema_of
from dsv2.base.type_variables import IN, OUT
from dsv2.extension.window.strategy import SlidingWindowStrategy
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import BatchFunction, EmitBatch, FailedRecordError

_TIME = "__time"
_SAMPLE = 4096


def combined(
    result: DeclaredResult[OUT], kind: type[IN], key_names: Sequence[str], strategy: SlidingWindowStrategy
) -> tuple[CombineColumns[IN, OUT], attrgetter[Any], WindowColumns[Any, OUT]] | None:
    """Return the function before the exchange, the key selector of what it emits, and the function after it.

    None: the records cannot be combined. The arguments are those of ``WindowColumns``.
    """
    names = [_field_of_key(result, index, len(key_names)) for index in range(len(key_names))]
    partial = result.partial
    if None in names or strategy.size % strategy.slide or not all(map(_is_exact(kind), partial.aggregates.values())):
        return None
    found = counted(partial)
    if found is None:
        return None
    before, again = copy(result), copy(result)
    before.partial, of_records = found
    again.partial = partial._replace(parts={name: _again(name, part) for name, part in partial.parts.items()})
    fields = [name for name in names if name is not None]
    final = WindowColumns[Any, OUT](again, before.partial.kind, fields, strategy, of_records)
    return CombineColumns(before, kind, key_names, strategy), attrgetter(*fields), final


def _field_of_key(result: DeclaredResult[Any], index: int, count: int) -> str | None:
    """The field of the result that holds a part of the key."""
    wanted = (None, 0) if count == 1 else (index,)
    return next((name for name, part in result.parts.items() if isinstance(part, Key) and part.index in wanted), None)


def _is_exact(kind: type) -> Any:
    schema, required = schema_of(kind), names_without_none(kind)

    def is_exact(part: Aggregate) -> bool:
        if isinstance(part, Count):
            return True
        # A partial result must not be None.
        is_complete = isinstance(part, Sum | Min | Max) and part.field in required
        return bool(is_complete and pa.types.is_int64(schema.field(part.field).type))

    return is_exact


def _again(name: str, part: Part) -> Part:
    """Return the aggregation for the partial results of a part."""
    if isinstance(part, Count):
        return Sum(name)
    return type(part)(name) if isinstance(part, Aggregate) else part


class CombineColumns(WindowAggregate[IN, OUT], BatchFunction):
    """Emits the partial results of each batch. It is stateless, so it can run in the tasks that read the source."""

    dsv2_inherits_parallelism = True
    dsv2_part_of = "aggregate"
    keeps_nothing = True

    @property
    def record_types(self) -> tuple[type, type]:
        return self.kind, self.result.partial.kind

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        output.collect_batch(self._combined(batch))

    def process_record_batch(self, batch: RecordBatch[Any], emit: EmitBatch) -> None:
        try:
            result = self._combined(batch)
        except Exception as error:
            raise FailedRecordError(batch.records) from process_batch_failure(error)
        emit(result)

    def _combined(self, batch: RecordBatch[Any]) -> RecordBatch[OUT]:
        table, times = table_of(batch.records, self.kind, self.fields), times_of(batch)
        times = times - (times - self.strategy.offset) % self.strategy.slide
        columns = {**self._key_columns(table), **self._added(table)}
        names = self.result.partial.parts
        for name in names:
            columns.setdefault(name, pa.array(times))  # bounds of the window, which are not known yet
        partial = pa.table({**{name: columns[name] for name in names}, _TIME: times})
        if self._repeats(partial) and self._fits(partial):
            partial = self._grouped(partial)
        stamps = ArrowWholeNumbers(partial[_TIME].combine_chunks())
        return RecordBatch(records_of(partial.drop_columns([_TIME]), self.result.partial.kind), stamps)

    def _repeats(self, partial: pa.Table) -> bool:
        """Return whether enough of the first records share key and windows, so that combining saves something."""
        first = partial.slice(0, _SAMPLE)
        different: int = first.group_by(self._groups(), use_threads=False).aggregate([]).num_rows
        return 2 * different <= len(first)

    def _fits(self, partial: pa.Table) -> bool:
        """Return whether no sum can exceed 64 bits. If one may, the sums are checked after the exchange."""
        sums = (name for name, part in self.result.partial.aggregates.items() if isinstance(part, Sum))
        return all(fits_in_sum(partial[name].fill_null(0).to_numpy()) for name in sums)

    def _grouped(self, partial: pa.Table) -> pa.Table:
        hows = [(name, part.how) for name, part in self.result.partial.aggregates.items()]
        grouped = partial.group_by(self._groups(), use_threads=False).aggregate(hows)
        columns = {name: grouped[f"{name}_{how}"] for name, how in hows}
        for name in partial.column_names:
            if name not in columns:
                columns[name] = grouped[name if name in grouped.column_names else _TIME]
        return pa.table({name: columns[name] for name in partial.column_names})

    def _groups(self) -> list[str]:
        return [*(name for name, part in self.result.parts.items() if isinstance(part, Key)), _TIME]
