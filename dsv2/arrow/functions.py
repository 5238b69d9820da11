"""Process functions that take Arrow tables instead of single records."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from dsv2.arrow.declared_types import declared_types
from dsv2.arrow.records import records_of, table_of
from dsv2.arrow.schema import schema_of
from dsv2.callables import takes
from dsv2.columnar import Columnar
from dsv2.context import Collector, NonPartitionedContext, PartitionedContext
from dsv2.errors import ConfigurationError, PlanError, SchemaError
from dsv2.extension.event_time import EventTimeProcessFunction
from dsv2.functions import OneInput
from dsv2.record_batch import RecordBatch
from dsv2.spi import (
    BatchFunction,
    ColumnarFunction,
    EmitBatch,
    FailedCallbackError,
    FailedRecordError,
    Position,
    check_returned,
)
from dsv2.watermark import Watermark, WatermarkHandlingResult

__all__ = ("ArrowCollector", "ArrowEventTimeProcessFunction", "ArrowProcessFunction", "MapTables", "map_tables")

IN = TypeVar("IN")
OUT = TypeVar("OUT")
OUT_contra = TypeVar("OUT_contra", contravariant=True)


class ArrowCollector(Collector[OUT_contra], Protocol[OUT_contra]):
    """Takes what an ``ArrowProcessFunction`` emits: tables, or single records as every collector does."""

    def collect_batch(self, batch: pa.Table, /, *, time_column: str | None = None) -> None:
        """Emit the rows of ``batch``, in order, as if each were collected.

        ``batch`` has the columns of the class of the records; more are left out, and numbers are cast.
        ``time_column``: one of its columns, whole numbers, is also the timestamps of the records (ms); else they have
        none. Raises ``SchemaError`` if it does not fit.
        """


class ArrowProcessFunction(ColumnarFunction[IN, OUT], ABC, Generic[IN, OUT]):
    """A function with one input and one output that gets the records in Arrow tables.

    ``IN`` and ``OUT`` are said in the class statement, ``class Sums(ArrowProcessFunction[Click, Total])``, and are
    NamedTuple classes or dataclasses whose fields have column types. What comes from functions that emit single records
    is put into tables first; what goes to functions that take single records becomes such.

    On a keyed stream a table has the records of all keys that came together; no key is in hand, and so there is
    neither keyed state nor a timer: keep tables in fields, which are part of the checkpoint.
    """

    def open(self, ctx: NonPartitionedContext[OUT]) -> None:
        """Called once per subtask, before any record; may emit watermarks."""

    @abstractmethod
    def process_batch(self, batch: pa.Table, output: ArrowCollector[OUT], ctx: PartitionedContext[OUT]) -> None:
        """Called for some thousand records at a time, of one channel, in order; watermarks stand between them.

        How many is not determined: it follows from how they came, and is the same when a micro-batch is repeated.
        """

    def end_input(self, output: ArrowCollector[OUT], ctx: NonPartitionedContext[OUT]) -> None:
        """Called once, when every channel of the input has ended."""

    def on_watermark(
        self, watermark: Watermark, output: ArrowCollector[OUT], ctx: NonPartitionedContext[OUT]
    ) -> WatermarkHandlingResult:
        """As in every function, between the tables."""
        return WatermarkHandlingResult.PEEK

    def dsv2_check_position(self, position: Position) -> None:
        super().dsv2_check_position(position)
        if position.key_preserving:
            raise PlanError(
                f"{type(self).__qualname__} takes records of many keys at once, so the stream cannot stay keyed: "
                f"leave out the key selector for its output, and call key_by behind it."
            )
        for kind in self.record_types:
            schema_of(kind)

    @property
    def record_types(self) -> tuple[type, type]:
        given, emitted = declared_types(type(self), ArrowProcessFunction, "Click, Total")
        return given, emitted

    def dsv2_process_columns(self, batch: RecordBatch[Any], output: Any, ctx: Any) -> None:
        process: Callable[..., object] = self.process_batch
        check_returned(process(table_of(batch.records, self.record_types[0]), output, ctx))

    def dsv2_collect_columns(self, emit: EmitBatch) -> Callable[..., None]:
        kind = self.record_types[1]

        def collect_batch(batch: pa.Table, /, *, time_column: str | None = None) -> None:
            records: Columnar[Any] = records_of(batch, kind)
            if not len(records):
                return
            times = None
            if time_column is not None and (times := records.whole_numbers(time_column)) is None:
                raise SchemaError(f"{kind.__qualname__} has no column {time_column!r} of whole numbers for timestamps.")
            emit(RecordBatch(records, times))

        return collect_batch


class ArrowEventTimeProcessFunction(ArrowProcessFunction[IN, OUT], EventTimeProcessFunction, Generic[IN, OUT]):
    """An ``ArrowProcessFunction`` with event time. Has no event timers, which are of a key."""

    def on_event_time_watermark(
        self, timestamp: int, output: ArrowCollector[OUT], ctx: NonPartitionedContext[OUT]
    ) -> None:
        """Called when event time has reached ``timestamp`` (ms), before it goes on."""


class MapTables(ArrowProcessFunction[IN, OUT], BatchFunction, Generic[IN, OUT]):
    """Made by ``map_tables``. Keeps nothing, so it runs where records are read."""

    def __init__(
        self, function: Callable[[pa.Table], pa.Table], types: tuple[type, type], time_column: str | None
    ) -> None:
        self.function = function
        self._types = types
        self._time_column = time_column

    @property
    def record_types(self) -> tuple[type, type]:
        return self._types

    @property
    def keeps_nothing(self) -> bool:
        return True

    def process_batch(self, batch: pa.Table, output: ArrowCollector[OUT], ctx: PartitionedContext[OUT]) -> None:
        output.collect_batch(self.function(batch), time_column=self._time_column)

    def process_record_batch(self, batch: RecordBatch[IN], emit: EmitBatch) -> None:
        try:
            result = self.function(table_of(batch.records, self._types[0]))
            self.dsv2_collect_columns(emit)(result, time_column=self._time_column)
        except Exception as error:
            failed = FailedCallbackError("process_batch")
            failed.__cause__ = error
            raise FailedRecordError(batch.records) from failed


def map_tables(
    function: Callable[[pa.Table], pa.Table], of: type[IN], to: type[OUT], *, time_column: str | None = None
) -> OneInput[IN, OUT]:
    """For ``process``: emits the rows of ``function(table)``, for tables of some thousand records of one channel.

    ``of``, ``to``: the classes of the records, NamedTuple classes or dataclasses. It may have fewer rows, or more: an
    aggregation that ``key_by`` and another one follow sends less. ``time_column``: as in ``ArrowCollector``.
    Raises ``ConfigurationError``, ``SchemaError``.
    """
    if not takes(function, 1):
        raise ConfigurationError(f"map_tables takes a callable (table) -> table, not {function!r}.")
    schema_of(of), schema_of(to)
    return MapTables(function, (of, to), time_column)
