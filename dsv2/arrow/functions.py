"""Process functions that receive Arrow tables instead of single records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Generic, NoReturn, Protocol, overload

import pyarrow as pa

from dsv2.arrow.keyed.columns import ArrowKeyedColumns, check_column_states
from dsv2.arrow.keyed.lists import ArrowKeyedLists
from dsv2.arrow.keyed.state import ArrowKeyedState
from dsv2.arrow.keyed.timers import ArrowTimers
from dsv2.arrow.records import records_of, table_of
from dsv2.arrow.schema import declared_types, schema_of
from dsv2.base.callables import takes
from dsv2.base.columnar import Columnar
from dsv2.base.type_variables import IN, OUT, OUT_contra, T
from dsv2.errors import ConfigurationError, ContractError, PlanError, SchemaError
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.functions import OneInput
from dsv2.model.context import Collector, NonPartitionedContext, PartitionedContext
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.state.columns_environment import ColumnsEnvironment
from dsv2.spi import (
    BatchFunction,
    ColumnarFunction,
    EmitBatch,
    FailedCallbackError,
    FailedRecordError,
    Position,
    check_returned,
)
from dsv2.state import ListStateDeclaration, ValueStateDeclaration
from dsv2.watermark import Watermark, WatermarkHandlingResult


class ArrowCollector(Collector[OUT_contra], Protocol[OUT_contra]):
    """The collector of an ``ArrowProcessFunction``. It emits tables, and single records like any collector."""

    def collect_batch(self, batch: pa.Table, /, *, time_column: str | None = None) -> None:
        """Emit the rows of ``batch`` in order.

        Args:
            batch: A table with the columns of the record class. As for ``records_of``.
            time_column: The integer column that contains the timestamps of the records, in ms. By default, records
                have no timestamps.

        Raises:
            SchemaError: The table does not match the record class, or has no such time column.
        """


class ArrowStates(Protocol):
    """The states and timers of all keys of the subtask, as columns. They require a keyed stream."""

    @overload
    def keyed_state(self, declaration: ValueStateDeclaration[T, Any], /) -> ArrowKeyedState[T]: ...
    @overload
    def keyed_state(self, declaration: ListStateDeclaration[T], /) -> ArrowKeyedLists[T]: ...
    def keyed_state(self, declaration: Any, /) -> Any:
        """The state of all keys. ``declaration`` is a value state or a list state of a class with columns.

        Raises:
            UndeclaredStateError: The function does not return ``declaration`` from ``uses_states``.
        """

    @property
    def event_timers(self) -> ArrowTimers:
        """Timers in event time, for ``ArrowEventTimeProcessFunction.on_event_timers``."""

    @property
    def processing_timers(self) -> ArrowTimers:
        """Timers in processing time, for ``ArrowProcessFunction.on_processing_timers``."""


class ArrowContext(PartitionedContext[OUT_contra], ArrowStates, Protocol[OUT_contra]):
    """The context of ``process_batch`` and of timers."""


class ArrowNonPartitionedContext(NonPartitionedContext[OUT_contra], ArrowStates, Protocol[OUT_contra]):
    """The context of all other callbacks. All keys of the subtask form one partition, so it offers the same."""

    def apply_to_all_partitions(
        self, function: Callable[[ArrowCollector[OUT_contra], ArrowContext[OUT_contra]], None], /
    ) -> None:
        """Call ``function`` once, for all keys. ``ctx.keyed_state(...).tables()`` has their values."""


class TableFunction(ColumnarFunction[IN, OUT], ABC, Generic[IN, OUT]):
    """The base of functions on tables: all callbacks but that for records."""

    @property
    def column_classes(self) -> Collection[type]:
        """The classes whose fields are columns."""
        return self.record_types

    def open(self, ctx: ArrowNonPartitionedContext[OUT]) -> None:
        """Called once per subtask, before the first record. It may emit watermarks."""

    def end_input(self, output: ArrowCollector[OUT], ctx: ArrowNonPartitionedContext[OUT]) -> None:
        """Called once, after every channel of the input has ended."""

    def on_watermark(
        self, watermark: Watermark, output: ArrowCollector[OUT], ctx: ArrowNonPartitionedContext[OUT]
    ) -> WatermarkHandlingResult:
        """Called for each watermark, between tables, as in every function."""
        return WatermarkHandlingResult.PEEK

    def dsv2_check_position(self, position: Position) -> None:
        super().dsv2_check_position(position)
        if position.key_preserving:
            raise PlanError(
                f"{type(self).__qualname__} processes records of several keys at once, so the stream cannot stay "
                f"keyed. Omit the key selector of its output and call key_by after it."
            )
        for kind in self.column_classes:
            schema_of(kind)
        check_column_states(self.uses_states(), type(self).__qualname__)

    def on_processing_timers(self, timers: pa.Table, output: ArrowCollector[OUT], ctx: ArrowContext[OUT]) -> None:
        """Called with the timers in processing time that are due, ordered by time.

        The columns of ``timers`` are those of the key, see ``ArrowKeyedState.tables``, and ``timestamp``.
        """

    def dsv2_uses_processing_timers(self) -> bool:
        return type(self).on_processing_timers is not TableFunction.on_processing_timers

    def dsv2_keyed_columns(self, environment: ColumnsEnvironment, fail: Callable[..., NoReturn]) -> ArrowKeyedColumns:
        return ArrowKeyedColumns(list(self.uses_states()), environment, fail)


class ArrowProcessFunction(TableFunction[IN, OUT], ABC, Generic[IN, OUT]):
    """A function with one input and one output that receives its records as Arrow tables.

    Declare ``IN`` and ``OUT`` in the class statement: ``class Sums(ArrowProcessFunction[Click, Total])``. They are
    NamedTuple classes or dataclasses whose fields have column types. Single records from upstream functions are
    gathered into tables, and tables are converted to records for downstream functions that process single records.

    On a keyed stream a table contains records of several keys. There is no current key: ``ctx.keyed_state`` and the
    timers of ``ctx`` take keys as columns. Instance fields are for small state. All of it is part of the checkpoint.
    """

    @abstractmethod
    def process_batch(self, batch: pa.Table, output: ArrowCollector[OUT], ctx: ArrowContext[OUT]) -> None:
        """Called with up to some thousand records of one channel, in order. Watermarks arrive between tables.

        The size of the tables is unspecified. It depends on how the records arrive and is the same when a micro-batch
        is retried.
        """

    @property
    def dsv2_tables_of(self) -> type:
        return self.record_types[0]

    @property
    def record_types(self) -> tuple[type, type]:
        given, emitted = declared_types(type(self), ArrowProcessFunction, "Click, Total")
        return given, emitted

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        process: Callable[..., object] = self.process_batch
        table = table_of(batch.records, self.record_types[0])
        ctx.columns.recognize(table)
        check_returned(process(table, output, ctx))
        ctx.columns.recognize(None)

    def dsv2_collect_columns(self, emit: EmitBatch) -> Callable[..., None]:
        kind = self.record_types[1]

        def collect_batch(batch: pa.Table, /, *, time_column: str | None = None) -> None:
            if not isinstance(batch, pa.Table | pa.RecordBatch):
                raise ContractError(f"collect_batch takes an Arrow table, not {type(batch).__name__}.")
            records: Columnar[Any] = records_of(batch, kind)
            if not len(records):
                return
            times = None
            if time_column is not None and (times := records.whole_numbers(time_column)) is None:
                raise SchemaError(f"{kind.__qualname__} has no column {time_column!r} of whole numbers for timestamps.")
            emit(RecordBatch(records, times))

        return collect_batch


class ArrowEventTimeProcessFunction(ArrowProcessFunction[IN, OUT], EventTimeProcessFunction, Generic[IN, OUT]):
    """An ``ArrowProcessFunction`` with event time and timers in event time."""

    def on_event_time_watermark(
        self, timestamp: int, output: ArrowCollector[OUT], ctx: ArrowNonPartitionedContext[OUT]
    ) -> None:
        """Called when event time has reached ``timestamp`` (ms), before it is forwarded."""

    def on_event_timers(self, timers: pa.Table, output: ArrowCollector[OUT], ctx: ArrowContext[OUT]) -> None:
        """Called with the timers in event time that are due, ordered by time. As ``on_processing_timers``."""


def process_batch_failure(error: Exception) -> FailedCallbackError:
    """Return the failure of ``process_batch`` for all records of a batch, caused by ``error``."""
    failed = FailedCallbackError("process_batch")
    failed.__cause__ = error
    return failed


class MapTables(ArrowProcessFunction[IN, OUT], BatchFunction, Generic[IN, OUT]):
    """The function of ``map_tables``. It is stateless, so it can run in the tasks that read the source."""

    keeps_nothing = True

    def __init__(
        self, function: Callable[[pa.Table], pa.Table], types: tuple[type, type], time_column: str | None
    ) -> None:
        self.function = function
        self._types = types
        self._time_column = time_column

    @property
    def record_types(self) -> tuple[type, type]:
        return self._types

    def process_batch(self, batch: pa.Table, output: ArrowCollector[OUT], ctx: ArrowContext[OUT]) -> None:
        output.collect_batch(self._applied(batch), time_column=self._time_column)

    def _applied(self, table: pa.Table) -> pa.Table:
        result = self.function(table)
        if not isinstance(result, pa.Table | pa.RecordBatch):
            raise ContractError(
                f"The function of map_tables returned {type(result).__name__}, not an Arrow table. Return a pa.Table, "
                f"from pandas with pa.Table.from_pandas(frame, preserve_index=False)."
            )
        return result

    def process_record_batch(self, batch: RecordBatch[IN], emit: EmitBatch) -> None:
        try:
            result = self._applied(table_of(batch.records, self._types[0]))
            self.dsv2_collect_columns(emit)(result, time_column=self._time_column)
        except Exception as error:
            raise FailedRecordError(batch.records) from process_batch_failure(error)


def map_tables(
    function: Callable[[pa.Table], pa.Table], of: type[IN], to: type[OUT], *, time_column: str | None = None
) -> OneInput[IN, OUT]:
    """Return a function for ``process`` that emits the rows of ``function(table)``.

    The result may have fewer or more rows than the table. For example, a partial aggregation before ``key_by`` sends
    less data to the final one.

    Args:
        function: Called with tables of up to some thousand records of one channel.
        of: The class of the input records, a NamedTuple class or dataclass.
        to: The class of the output records, likewise.
        time_column: The integer column of the result that contains the timestamps, in ms. By default, the records
            have no timestamps.

    Raises:
        ConfigurationError: ``function`` cannot be called with one argument.
        SchemaError: A class has no columns, or a field has no column type.
    """
    if not takes(function, 1):
        raise ConfigurationError(f"map_tables requires a callable (table) -> table, got {function!r}.")
    schema_of(of), schema_of(to)
    return MapTables(function, (of, to), time_column)
