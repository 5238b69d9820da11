"""Declared aggregates, record by record."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Generic

from dsv2.aggregates.result import Adder, DeclaredResult
from dsv2.base.type_variables import IN, OUT
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.model.context import Collector, PartitionedContext
from dsv2.spi import KeepsAggregates, KeptAggregates
from dsv2.state import AggregateFunction, StateDeclaration, ValueStateDeclaration


def new_state(result: DeclaredResult[Any]) -> ValueStateDeclaration[Any, Any]:
    """The state of a running aggregation: the accumulators of the key."""
    return ValueStateDeclaration("aggregates", result.partial.kind)


class RunningAggregate(OneInputStreamProcessFunction[IN, OUT], KeepsAggregates, Generic[IN, OUT]):
    """Emits the result of a key, or of a global stream, with each of its records."""

    dsv2_remember_keys = False
    dsv2_partition_by_constant = True

    def __init__(self, result: DeclaredResult[OUT], why: str) -> None:
        self.result = result
        self.why = why
        """The reason why it does not run on columns."""
        self._state = new_state(result)
        self._adder = Adder(result)
        self._empty = result.partial.empty

    @property
    def kept_aggregates(self) -> KeptAggregates:
        return KeptAggregates(self.result.declared, ())

    def prepare_records(self, records: Sequence[Any]) -> None:
        self._adder.prepare(records)

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._state]

    def process_record(self, record: IN, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        state = ctx.state_manager.get_state(self._state)
        before, key = state.value(), ctx.state_manager.current_key
        partial = self._adder.add(record, self._empty if before is None else before)
        after = self.result.finished(partial, key)
        state.update(partial)
        output.collect(after)


class FoldedRecords(AggregateFunction[IN, Any, Any], KeepsAggregates, Generic[IN]):
    """The aggregation of the records of a window to a partial result without key and bounds."""

    def __init__(self, result: DeclaredResult[Any]) -> None:
        self.result = result
        self._adder = Adder(result)

    @property
    def kept_aggregates(self) -> KeptAggregates:
        return KeptAggregates(self.result.declared, (self.result.partial.kind,))

    def prepare_records(self, records: Sequence[Any]) -> None:
        self._adder.prepare(records)

    def create_accumulator(self) -> Any:
        return self.result.partial.empty

    def add(self, value: IN, accumulator: Any) -> Any:
        return self._adder.add(value, accumulator)

    def merge(self, first: Any, second: Any) -> Any:
        return self.result.merge(first, second)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator


class EmitWindow(Generic[OUT]):
    """Creates the result of a window."""

    def __init__(self, result: DeclaredResult[OUT], why: str) -> None:
        self.result = result
        self.why = why
        """The reason why it does not run on columns."""

    def __call__(self, partial: Any, window: Any, ctx: Any) -> OUT:
        key = ctx.state_manager.current_key
        return self.result.finished(partial, key, window.start_time, window.end_time)
