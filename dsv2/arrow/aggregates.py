"""Declared aggregates on columns: running, and in windows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from dsv2.aggregates import Aggregate, Count, Key, Mean, WindowEnd, WindowStart
from dsv2.aggregates.result import DeclaredResult
from dsv2.aggregates.rows import new_state
from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.functions import TableFunction
from dsv2.arrow.keyed.columns import empty_value
from dsv2.arrow.keyed.folding import check_how
from dsv2.arrow.keyed.panes import ArrowPanes
from dsv2.arrow.records import ArrowRecords, ArrowWholeNumbers, records_of, table_of
from dsv2.arrow.schema import schema_of
from dsv2.arrow.windows import late_records, rows_by_window
from dsv2.base.type_variables import IN, OUT
from dsv2.errors import ConfigurationError, ContractError, SchemaError
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.extension.window.strategy import SlidingWindowStrategy
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.spi import EmitBatch, KeepsAggregates, KeptAggregates, last_of
from dsv2.state import StateDeclaration

_FLOATS = 1 << 53
"""All whole numbers up to this one are floats."""


def why_not_columns(result: DeclaredResult[Any], kind: type, key_names: Sequence[str]) -> str | None:
    """Return why records of ``kind`` cannot be aggregated in columns; None if they can be.

    Args:
        result: The declaration.
        kind: The class of the records.
        key_names: The fields that are the key.
    """
    try:
        given, made = schema_of(kind), schema_of(result.kind)
        for name, part in result.parts.items():
            if isinstance(part, Mean) and not pa.types.is_float64(made.field(name).type):
                return f"{name!r} of {result.kind.__qualname__} is {made.field(name).type}, and a mean is double"
        for name in _fields_read(result, key_names):
            if name in given.names and "decimal" in str(given.field(name).type):
                return f"{name!r} of {kind.__qualname__} is a Decimal, whose digits a column does not keep"
        made = schema_of(result.partial.kind)
    except SchemaError as error:
        return str(error).rstrip(".")
    for name, part in result.partial.parts.items():
        field = made.field(name)
        if isinstance(part, Key):
            source = given.field(key_names[part.index or 0]) if len(key_names) == 1 or part.index is not None else None
            if source is None or source.type != field.type:
                return f"{name!r} of {result.kind.__qualname__} is not a column with the type of the key"
        if isinstance(part, Aggregate) and (reason := _misfit(part, given, field)) is not None:
            return f"{name!r} of {result.kind.__qualname__} {reason}"
    return None


def _fields_read(result: DeclaredResult[Any], key_names: Sequence[str]) -> set[str]:
    """The fields of the records that an aggregation reads."""
    return {*key_names, *(part.field for part in result.partial.aggregates.values() if part.field)}


def _misfit(part: Aggregate, given: pa.Schema, field: pa.Field) -> str | None:
    if part.field and given.get_field_index(part.field) < 0:
        return f"aggregates {part.field!r}, which is not a column"
    kind = pa.int64() if isinstance(part, Count) else given.field(part.field).type
    if kind != field.type:
        return f"is {field.type}, and what it aggregates is {kind}"
    try:
        check_how(part.how, field.name, kind)
    except ConfigurationError as error:
        return str(error).rstrip(".")
    return None


class ColumnAggregate(TableFunction[IN, OUT]):
    """Base class of the functions that aggregate columns."""

    def __init__(self, result: DeclaredResult[OUT], kind: type[IN], key_names: Sequence[str]) -> None:
        self.result = result
        self.kind = kind
        self.key_names = tuple(key_names)
        self.fields = frozenset(_fields_read(result, key_names))
        """The fields that are read; the others do not become columns."""

    @property
    def record_types(self) -> tuple[type, type]:
        return self.kind, self.result.kind

    def dsv2_collect_columns(self, emit: EmitBatch) -> Callable[..., None]:
        return emit

    def _keys_of(self, table: pa.Table) -> list[pa.ChunkedArray]:
        return [table[name] for name in self.key_names]

    def _added(self, table: pa.Table) -> dict[str, pa.Array]:
        """The columns that are aggregated, by field of the result."""
        added: dict[str, Any] = {}
        for name, part in self.result.partial.aggregates.items():
            if isinstance(part, Count):
                added[name] = _ones(table[part.field] if part.field else None, table.num_rows)
            else:
                added[name] = table[part.field]
        return added

    def _key_columns(self, table: pa.Table) -> dict[str, pa.ChunkedArray]:
        """The fields of the result that are the key."""
        return {
            name: table[self.key_names[part.index or 0]]
            for name, part in self.result.parts.items()
            if isinstance(part, Key)
        }

    def _means(self, partial: Mapping[str, pa.Array | pa.ChunkedArray]) -> dict[str, pa.Array]:
        """The means of partial results."""
        return {
            name: _divided(_one_array(partial[of_sum]), _one_array(partial[of_count]))
            for name, (of_sum, of_count) in self.result.partial.means.items()
        }


class RunningColumns(ColumnAggregate[IN, OUT], KeepsAggregates):
    """Emits the result of a key with each of its records."""

    def __init__(self, result: DeclaredResult[OUT], kind: type[IN], key_names: Sequence[str]) -> None:
        super().__init__(result, kind, key_names)
        self._state = new_state(result)

    @property
    def kept_aggregates(self) -> KeptAggregates:
        return KeptAggregates(self.result.declared, ())

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._state]

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table = table_of(batch.records, self.kind, self.fields)
        keys, of_key = self._keys_of(table), self._key_columns(table)
        hows = {name: part.how for name, part in self.result.partial.aggregates.items()}
        columns, hows = {**of_key, **self._added(table)}, {**dict.fromkeys(of_key, "last"), **hows}
        after = ctx.keyed_state(self._state).accumulate(keys, columns, hows)
        for name, mean in self._means(after).items():
            after = after.append_column(name, mean)
        output.collect_batch(RecordBatch(records_of(after, self.result.kind), batch.timestamps))


class WindowAggregate(ColumnAggregate[IN, OUT]):
    """Base class of the functions that aggregate the columns of windows.

    Args:
        result: As for ``ColumnAggregate``.
        kind: Likewise.
        key_names: Likewise.
        strategy: The windows.
        of_records: The field with the number of records, of partial results. Empty: each one is a record.
    """

    def __init__(
        self,
        result: DeclaredResult[OUT],
        kind: type[IN],
        key_names: Sequence[str],
        strategy: SlidingWindowStrategy,
        of_records: str = "",
    ) -> None:
        super().__init__(result, kind, key_names)
        self.strategy = strategy
        self._of_records = of_records
        if of_records:
            self.fields |= {of_records}


class WindowColumns(WindowAggregate[IN, OUT], EventTimeProcessFunction, KeepsAggregates):
    """Emits the results of windows when event time has reached their end."""

    @property
    def state_layout(self) -> str:
        return f"{self.strategy.layout}, which hold {self.contents}"

    @property
    def contents(self) -> str:
        return "accumulators"

    @property
    def kept_aggregates(self) -> KeptAggregates:
        return KeptAggregates(self.result.declared, (self.result.partial.kind,))

    def dsv2_keyed_columns(self, environment: ColumnsEnvironment, fail: Callable[..., NoReturn]) -> ArrowPanes:
        size = self.strategy.size
        partial = self.result.partial
        hows = {name: part.how for name, part in partial.aggregates.items()}
        return ArrowPanes(empty_value(partial.kind), hows, lambda slot: last_of(slot, size), environment, fail)

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table = table_of(batch.records, self.kind, self.fields)
        times, event_time = times_of(batch), ctx.event_timers.current_time()
        strategy, panes = self.strategy, ctx.columns
        if len(times) and times.min() <= event_time:
            self._count_late(table, late_records(strategy, times, event_time), ctx)
        keys, columns = self._keys_of(table), self._added(table)
        for slot, places in rows_by_window(strategy, times, event_time):
            if places is None:
                panes.fold(slot, keys, {name: _one_array(column) for name, column in columns.items()})
                continue
            rows = pa.array(places)
            own = {name: _one_array(column.take(rows)) for name, column in columns.items()}
            panes.fold(slot, [key.take(rows) for key in keys], own)

    def _count_late(self, table: pa.Table, late: Numbers, ctx: Any) -> None:
        count = np.count_nonzero(late) if not self._of_records else table[self._of_records].to_numpy()[late].sum()
        if count:
            ctx.metric_group.counter("late_records_dropped").inc(int(count))

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        panes: ArrowPanes = ctx.columns
        for slot in panes.due(timestamp):
            end = last_of(slot, self.strategy.size) + 1
            for keys, values in panes.contents(slot):
                records = self._results(keys, values, slot, end)
                output.collect_batch(RecordBatch(records, ArrowWholeNumbers(_repeated(end - 1, len(records)))))
            panes.drop(slot)

    def _results(
        self, keys: Sequence[pa.Array], values: Mapping[str, pa.Array], start: int, end: int
    ) -> ArrowRecords[OUT]:
        columns: dict[str, pa.Array] = self._means(values)
        for name, part in self.result.parts.items():
            match part:
                case Mean():
                    continue
                case Key():
                    columns[name] = keys[part.index or 0]
                case WindowStart():
                    columns[name] = _repeated(start, len(keys[0]))
                case WindowEnd():
                    columns[name] = _repeated(end, len(keys[0]))
                case _:
                    columns[name] = values[name]
        return records_of(pa.table(columns), self.result.kind)


def times_of(batch: RecordBatch[Any]) -> Numbers:
    """The timestamps of a batch.

    Raises:
        ContractError: A record has none.
    """
    timestamps = batch.timestamps
    if isinstance(timestamps, ArrowWholeNumbers):
        found: Numbers = timestamps.array.to_numpy()
        return found
    if timestamps is None or None in timestamps:
        raise ContractError(
            "Windows in event time require records with timestamps, but a record has none. Put a generator before the "
            "window (EventTimeExtension.new_watermark_generator_builder), or use windows with TimeType.PROCESSING."
        )
    return np.array(timestamps, np.int64)


def _divided(sums: pa.Array, counts: pa.Array) -> pa.Array:
    """The results of ``Mean.of``."""
    numbers = sums.fill_null(0).to_numpy(zero_copy_only=False)
    is_simple = pa.types.is_float64(sums.type)
    if pa.types.is_int64(sums.type):  # larger ones are not floats: they would be rounded twice
        is_simple = bool(((numbers > -_FLOATS) & (numbers < _FLOATS)).all())
    if not is_simple:
        means = [Mean.of(total, count) for total, count in zip(sums.to_pylist(), counts.to_pylist(), strict=True)]
        return pa.array(means, pa.float64())
    missing = sums.is_null().to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore", divide="ignore"):
        return pa.array(numbers / counts.to_numpy(), pa.float64(), mask=missing)


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return in_one_piece(column) if isinstance(column, pa.ChunkedArray) else column


def _repeated(number: int, count: int) -> pa.Int64Array:
    return pa.array(np.full(count, number, np.int64))


def _ones(column: pa.ChunkedArray | None, rows: int) -> pa.Array:
    if column is None or not column.null_count:
        return pa.array(np.ones(rows, np.int64))
    return pa.array(column.is_valid().to_numpy().astype(np.int64))
