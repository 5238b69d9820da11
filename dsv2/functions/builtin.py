"""Process functions for map, filter and flat map, and for plain callables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, compress, repeat
from operator import sub
from typing import Generic

from dsv2.base.type_variables import IN, OUT, T
from dsv2.functions.one_input import OneInputStreamProcessFunction
from dsv2.model.context import Collector, PartitionedContext
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import BatchFunction, EmitBatch, FailedRecordError


class MapFunction(OneInputStreamProcessFunction[IN, OUT], BatchFunction, Generic[IN, OUT]):
    """Emits ``function(record)``."""

    def __init__(self, function: Callable[[IN], OUT]) -> None:
        self.function = function

    @property
    def keeps_nothing(self) -> bool:
        return type(self) is MapFunction  # a subclass may have state

    def process_record(self, record: IN, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        output.collect(self.function(record))

    def process_record_batch(self, batch: RecordBatch[IN], emit: EmitBatch) -> None:
        function, record = self.function, None
        results: list[OUT] = []
        append = results.append
        try:
            for record in batch.records:
                append(function(record))
        except BaseException as error:
            raise FailedRecordError(record) from error
        emit(RecordBatch(results, batch.timestamps))


class FilterFunction(OneInputStreamProcessFunction[T, T], BatchFunction, Generic[T]):
    """Emits the records for which ``predicate(record)`` is true."""

    def __init__(self, predicate: Callable[[T], bool]) -> None:
        self.predicate = predicate

    @property
    def keeps_nothing(self) -> bool:
        return type(self) is FilterFunction  # a subclass may have state

    def process_record(self, record: T, output: Collector[T], ctx: PartitionedContext[T]) -> None:
        if self.predicate(record):
            output.collect(record)

    def process_record_batch(self, batch: RecordBatch[T], emit: EmitBatch) -> None:
        predicate, record = self.predicate, None
        kept: list[bool] = []
        append = kept.append
        try:
            for record in batch.records:
                append(bool(predicate(record)))
        except BaseException as error:
            raise FailedRecordError(record) from error
        timestamps = None if batch.timestamps is None else list(compress(batch.timestamps, kept))
        emit(RecordBatch(list(compress(batch.records, kept)), timestamps))


class FlatMapFunction(OneInputStreamProcessFunction[IN, OUT], BatchFunction, Generic[IN, OUT]):
    """Emits every element of ``function(record)``."""

    def __init__(self, function: Callable[[IN], Iterable[OUT]]) -> None:
        self.function = function

    @property
    def keeps_nothing(self) -> bool:
        return type(self) is FlatMapFunction  # a subclass may have state

    def process_record(self, record: IN, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        for element in self.function(record):
            output.collect(element)

    def process_record_batch(self, batch: RecordBatch[IN], emit: EmitBatch) -> None:
        function, record = self.function, None
        results: list[OUT] = []
        ends: list[int] = []
        try:
            for record in batch.records:
                results.extend(function(record))
                ends.append(len(results))
        except BaseException as error:
            raise FailedRecordError(record) from error
        timestamps = None
        if batch.timestamps is not None:
            counts = map(sub, ends, [0, *ends])
            timestamps = list(chain.from_iterable(map(repeat, batch.timestamps, counts)))
        emit(RecordBatch(results, timestamps))


class CallableFunction(OneInputStreamProcessFunction[IN, OUT], Generic[IN, OUT]):
    """Runs a callable ``(record, output, ctx)``, the counterpart of a lambda in Flink."""

    def __init__(self, function: Callable[[IN, Collector[OUT], PartitionedContext[OUT]], None]) -> None:
        self.function = function

    @property
    def dsv2_reading_declares(self) -> bool:
        return True

    def process_record(self, record: IN, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        return self.function(record, output, ctx)  # the caller checks that it is None
