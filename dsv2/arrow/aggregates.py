"""Declared aggregates on columns: running, and in windows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dsv2.aggregates import Aggregate, Key, WindowEnd, WindowStart
from dsv2.aggregates.result import DeclaredResult
from dsv2.aggregates.rows import new_state
from dsv2.arrow.aggregate_columns import AggregateColumns, Arrays, columns_of, inputs_of
from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.functions import TableFunction
from dsv2.arrow.keyed.columns import empty_value
from dsv2.arrow.keyed.folding import Groups
from dsv2.arrow.keyed.panes import ArrowPanes, ClockPanes
from dsv2.arrow.records import ArrowRecords, ArrowWholeNumbers, keys_of, records_of, table_of, taken_times
from dsv2.arrow.schema import schema_of
from dsv2.arrow.windows import late_records, rows_by_window
from dsv2.base.columnar import fields_read
from dsv2.base.type_variables import IN, OUT
from dsv2.errors import ConfigurationError, ContractError, SchemaError
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.extension.window.strategy import SlidingWindowStrategy
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.spi import EmitBatch, KeepsAggregates, KeptAggregates, last_of
from dsv2.state import StateDeclaration
from dsv2.watermark.event_time import LONG_MIN


def why_not_columns(result: DeclaredResult[Any], kind: type, key_names: Sequence[str]) -> str | None:
    """Return why records of ``kind`` cannot be aggregated in columns; None if they can be.

    Args:
        result: The declaration.
        kind: The class of the records.
        key_names: The fields that are the key.
    """
    owner = result.kind.__qualname__
    try:
        given, made = schema_of(kind), schema_of(result.kind)
        for name in sorted(_fields_read(result, key_names)):
            if name in given.names and "decimal" in str(given.field(name).type):
                return f"{name!r} of {kind.__qualname__} is a Decimal, whose digits a column does not keep"
        schema_of(result.partial.kind)
    except SchemaError as error:
        return str(error).rstrip(".")
    for name, part in result.parts.items():
        if isinstance(part, Key):
            is_part = len(key_names) == 1 or part.index is not None
            if not is_part or keys_of(given.empty_table(), key_names)[part.index or 0].type != made.field(name).type:
                return f"{name!r} of {owner} is not a column with the type of the key"
    for name, columns in _columns_of(result).items():
        if (reason := _misfit(name, columns, given, result)) is not None:
            return f"{name!r} of {owner} {reason}"
    return None


def _fields_read(result: DeclaredResult[Any], key_names: Sequence[str]) -> set[str]:
    """The fields of the records that an aggregation reads, without those that only filters read."""
    return {*fields_read(key_names), *(name for part in result.partial.aggregates.values() for name in part.inputs)}


def _columns_of(result: DeclaredResult[Any]) -> dict[str, AggregateColumns[Any]]:
    made, accumulators = schema_of(result.kind), schema_of(result.partial.kind).types
    return {
        name: columns_of(
            part,
            accumulators[result.partial.places[name]],
            made.field(name).type if name in result.parts else pa.int64(),
        )
        for name, part in result.partial.aggregates.items()
    }


def _misfit(name: str, columns: AggregateColumns[Any], given: pa.Schema, result: DeclaredResult[Any]) -> str | None:
    part = columns.part
    if part.filter is not None and name not in result.conditions:
        return "has a filter that is a function, not an expression"
    missing = next((one for one in part.inputs if given.get_field_index(one) < 0), None)
    if missing is not None:
        return f"aggregates {missing!r}, which is not a column"
    try:
        found = columns.found_type([given.field(one).type for one in part.inputs])
    except ConfigurationError as error:
        return f"cannot be aggregated: {str(error).rstrip('.')}"
    return None if found == columns.result_type else f"is {columns.result_type}, and what it aggregates is {found}"


class ColumnAggregate(TableFunction[IN, OUT]):
    """Base class of the functions that aggregate columns."""

    def __init__(self, result: DeclaredResult[OUT], kind: type[IN], key_names: Sequence[str]) -> None:
        self.result = result
        self.kind = kind
        self.key_names = key_names
        self.fields = None if result.conditions else frozenset(_fields_read(result, key_names))
        """The fields that are read; the others do not become columns. None: all."""
        self.columns = _columns_of(result)
        """The aggregates."""

    @property
    def record_types(self) -> tuple[type, type]:
        return self.kind, self.result.kind

    def dsv2_collect_columns(self, emit: EmitBatch) -> Callable[..., None]:
        return emit

    def _keys_of(self, table: pa.Table) -> list[pa.ChunkedArray]:
        return keys_of(table, self.key_names)

    def _inputs(self, table: pa.Table) -> dict[str, Arrays]:
        """The inputs of each aggregate, by field of the result."""
        aggregates, chosen = self.result.partial.aggregates, self._chosen(table)
        return {name: self._inputs_of(table, part, chosen.get(name)) for name, part in aggregates.items()}

    def _chosen(self, table: pa.Table) -> dict[str, Numbers]:
        """The rows for which each filter is true, by field of the result."""
        conditions = self.result.conditions
        found = {condition: _as_numbers(condition.of(table)) for condition in set(conditions.values())}
        return {name: found[condition] for name, condition in conditions.items()}

    def _inputs_of(self, table: pa.Table, part: Aggregate, chosen: Numbers | None) -> Arrays:
        return inputs_of(part, [in_one_piece(table[one]) for one in part.inputs], table.num_rows, chosen)

    def _records_of(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> ArrowRecords[OUT]:
        """The results with these fields."""
        chosen = {name: columns[name] for name in self.result.parts}
        for name, default in self.result.defaults.items():
            if chosen[name].null_count:
                chosen[name] = pc.fill_null(chosen[name], pa.scalar(default, chosen[name].type))
        return records_of(pa.table(chosen), self.result.kind)

    def _results(
        self, keys: Sequence[pa.Array], accumulators: Arrays, start: int | Numbers, end: int | Numbers
    ) -> ArrowRecords[OUT]:
        """The results of windows with these keys, accumulators and bounds."""
        found: dict[str, pa.Array] = {}
        for name, part in self.result.parts.items():
            match part:
                case Key():
                    found[name] = keys[part.index or 0]
                case WindowStart():
                    found[name] = _repeated(start, len(keys[0]))
                case WindowEnd():
                    found[name] = _repeated(end, len(keys[0]))
                case _:
                    found[name] = self.columns[name].results(accumulators[self.result.partial.places[name]])
        return self._records_of(found)


class RunningColumns(ColumnAggregate[IN, OUT], KeepsAggregates):
    """Emits the result of a key with each of its records."""

    def __init__(self, result: DeclaredResult[OUT], kind: type[IN], key_names: Sequence[str]) -> None:
        super().__init__(result, kind, key_names)
        self._state = new_state(result)

    @property
    def kept_aggregates(self) -> KeptAggregates:
        return KeptAggregates(self.result.declared, ())

    def prepare_records(self, records: Sequence[Any]) -> None:
        """Records are not processed one by one."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._state]

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table = table_of(batch.records, self.kind, self.fields)
        keys, inputs, found = self._keys_of(table), self._inputs(table), dict[str, Any]()
        rows = self._emitted(keys, ctx)
        for name, part in self.result.parts.items():
            if isinstance(part, Key):
                column = keys[part.index or 0]
                found[name] = column if rows is None else column.take(rows)

        def step(current: Arrays, groups: Groups) -> Arrays:
            after: list[pa.Array] = []
            for name, columns in self.columns.items():
                own = current[self.result.partial.places[name]]
                found[name], more = self._added(columns, own, inputs[name], groups)
                after += more
            return after

        ctx.keyed_state(self._state).dsv2_fold(keys, step)
        times = batch.timestamps if rows is None else taken_times(batch.timestamps, rows)
        output.collect_batch(RecordBatch(self._records_of(found), times))

    def _emitted(self, keys: Sequence[pa.ChunkedArray], ctx: Any) -> pa.Int64Array | None:
        """The rows with which results are emitted. None: all."""
        return None

    def _added(
        self, columns: AggregateColumns[Any], current: Arrays, inputs: Arrays, groups: Groups
    ) -> tuple[pa.Array, Arrays]:
        """Return the results of an aggregate for these rows, and the accumulators of each group."""
        return columns.running(current, inputs, groups)


class MiniBatchColumns(RunningColumns[IN, OUT]):
    """Emits the result of a key with the last of its records that arrive together."""

    def _emitted(self, keys: Sequence[pa.ChunkedArray], ctx: Any) -> pa.Int64Array | None:
        return ctx.columns.find(keys).last_rows()

    def _added(
        self, columns: AggregateColumns[Any], current: Arrays, inputs: Arrays, groups: Groups
    ) -> tuple[pa.Array, Arrays]:
        after = columns.fold(current, inputs, groups)
        return columns.results(after), after


class WindowAggregate(ColumnAggregate[IN, OUT]):
    """Base class of the functions that aggregate the columns of windows.

    Args:
        result: As for ``ColumnAggregate``.
        kind: Likewise.
        key_names: Likewise.
        strategy: The windows.
    """

    def __init__(
        self, result: DeclaredResult[OUT], kind: type[IN], key_names: Sequence[str], strategy: SlidingWindowStrategy
    ) -> None:
        super().__init__(result, kind, key_names)
        self.strategy = strategy


class PaneColumns(WindowAggregate[IN, OUT], KeepsAggregates):
    """Base class of the functions that keep accumulators of windows, and emit the results at their end."""

    _panes: ClassVar[type[ArrowPanes]] = ArrowPanes

    @property
    def state_layout(self) -> str:
        return f"{self.strategy.layout}, which hold {self.contents}"

    @property
    def contents(self) -> str:
        return "accumulators"

    @property
    def kept_aggregates(self) -> KeptAggregates:
        return KeptAggregates(self.result.declared, (self.result.partial.kind,))

    def prepare_records(self, records: Sequence[Any]) -> None:
        """Records are not processed one by one."""

    def dsv2_keyed_columns(self, environment: ColumnsEnvironment, fail: Callable[..., NoReturn]) -> ArrowPanes:
        size = self.strategy.size
        template = empty_value(self.result.partial.kind)
        return self._panes(template, lambda slot: last_of(slot, size), environment, fail)

    def _fold(self, table: pa.Table, times: Numbers, passed: int, panes: ArrowPanes) -> None:
        """Fold rows with these times into their windows that end after ``passed``."""
        keys, inputs = self._keys_of(table), self._inputs(table)
        for slot, places in rows_by_window(self.strategy, times, passed):
            if places is None:
                panes.fold(slot, keys, partial(self._folded, inputs))
                continue
            rows = pa.array(places)
            own = {name: [column.take(rows) for column in columns] for name, columns in inputs.items()}
            panes.fold(slot, [key.take(rows) for key in keys], partial(self._folded, own))

    def _folded(self, inputs: Mapping[str, Arrays], current: Arrays, groups: Groups) -> Arrays:
        """The accumulators of each group with more values."""
        after: list[pa.Array] = []
        for name, columns in self.columns.items():
            after += columns.fold(current[self.result.partial.places[name]], inputs[name], groups)
        return after

    def _emit(self, due: Iterable[int], output: Any, panes: ArrowPanes) -> None:
        for slot in due:
            end = last_of(slot, self.strategy.size) + 1
            for keys, values in panes.contents(slot):
                records = self._results(keys, values, self.strategy.start_of(slot), end)
                output.collect_batch(RecordBatch(records, ArrowWholeNumbers(_repeated(end - 1, len(records)))))
            panes.drop(slot)


class WindowColumns(PaneColumns[IN, OUT], EventTimeProcessFunction):
    """Emits the results of windows when event time has reached their end."""

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        table = table_of(batch.records, self.kind, self.fields)
        times, event_time = times_of(batch), ctx.event_timers.current_time()
        if len(times) and times.min() <= event_time:
            late = self._records(table, late_records(self.strategy, times, event_time))
            if late:
                ctx.metric_group.counter("late_records_dropped").inc(late)
        self._fold(table, times, event_time, ctx.columns)

    def _records(self, table: pa.Table, chosen: Numbers) -> int:
        """The number of records in some rows."""
        return int(np.count_nonzero(chosen))

    def on_event_time_watermark(self, timestamp: int, output: Any, ctx: Any) -> None:
        self._emit(ctx.columns.due(timestamp), output, ctx.columns)


class ClockColumns(PaneColumns[IN, OUT]):
    """Emits the results of windows when the clock has reached their end."""

    _panes = ClockPanes

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        times = np.full(len(batch), ctx.processing_timers.current_time())
        self._fold(table_of(batch.records, self.kind, self.fields), times, LONG_MIN, ctx.columns)

    def on_processing_timers(self, timers: list[int], output: Any, ctx: Any) -> None:
        """Called with the windows that are due."""
        self._emit(timers, output, ctx.columns)


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


def _as_numbers(column: pa.BooleanArray) -> Numbers:
    found: Numbers = column.fill_null(False).to_numpy(zero_copy_only=False)
    return found


def _repeated(number: int | Numbers, count: int) -> pa.Int64Array:
    return pa.array(np.full(count, number, np.int64))
