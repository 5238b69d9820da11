"""The functions of ``union``, ``deduplicate``, ``sample`` and ``limit``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import log
from typing import Any, Generic

from dsv2.base.type_variables import T
from dsv2.functions.one_input import OneInputStreamProcessFunction
from dsv2.model.context import Collector, PartitionedContext
from dsv2.model.record_batch import RecordBatch
from dsv2.spi import BatchFunction, EmitBatch
from dsv2.state import StateDeclaration, StateDeclarations, StateTtl

_WORD = (1 << 64) - 1
_NO_CODE = "it calls no code that can fail. Set the policy of a function before or after it."


class UnionFunction(OneInputStreamProcessFunction[T, T], BatchFunction, Generic[T]):
    """Emits the records of all inputs."""

    dsv2_refuses_error_policy = _NO_CODE
    keeps_nothing = True
    passes_records = True

    def process_record(self, record: T, output: Collector[T], ctx: PartitionedContext[T]) -> None:
        output.collect(record)

    def process_record_batch(self, batch: RecordBatch[T], emit: EmitBatch) -> None:
        emit(batch)


class DeduplicateFunction(OneInputStreamProcessFunction[T, T], Generic[T]):
    """Emits the first record of each key, and further ones after the time to live of the first."""

    dsv2_remember_keys = False

    def __init__(self, ttl: StateTtl | None) -> None:
        self._seen = StateDeclarations.value_state("seen", bool, ttl=ttl)

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._seen]

    def process_record(self, record: T, output: Collector[T], ctx: PartitionedContext[T]) -> None:
        seen = ctx.state_manager.get_state(self._seen)
        if seen.value() is None:
            seen.update(True)
            output.collect(record)

    def process_records(self, records: Sequence[T], output: Collector[T], ctx: PartitionedContext[T]) -> None:
        self.process_record(records[0], output, ctx)  # time does not advance before the others


class LimitFunction(OneInputStreamProcessFunction[T, T], Generic[T]):
    """Emits the first records. Runs in one subtask."""

    dsv2_refuses_error_policy = _NO_CODE

    def __init__(self, count: int) -> None:
        self._count = count
        self._emitted = 0

    def process_record(self, record: T, output: Collector[T], ctx: PartitionedContext[T]) -> None:
        if self._emitted < self._count:
            self._emitted += 1
            output.collect(record)


class SampleFunction(OneInputStreamProcessFunction[T, T], Generic[T]):
    """Emits each record with the same probability.

    The numbers of records to skip have a geometric distribution, so a random number is drawn for each emitted record.
    """

    dsv2_refuses_error_policy = _NO_CODE

    def __init__(self, fraction: float, seed: int) -> None:
        self._fraction = fraction
        self._seed = seed
        self._generator: int | None = None
        self._skip = 0

    def redistribute_fields(self, parts: Sequence[Mapping[str, Any]], parallelism: int) -> list[dict[str, Any]]:
        """Begin new sequences: records are independent of each other."""
        return [{} for _ in range(parallelism)]

    def process_record(self, record: T, output: Collector[T], ctx: PartitionedContext[T]) -> None:
        if self._generator is None:
            self._generator = _mixed(_mixed(self._seed) + ctx.task_info.index_of_this_subtask)
            self._draw()
        if self._skip:
            self._skip -= 1
            return
        self._draw()
        output.collect(record)

    def _draw(self) -> None:
        """Draw how many records are skipped before the next one is emitted."""
        if self._fraction == 1:
            return
        assert self._generator is not None
        self._generator = (self._generator + 0x9E3779B97F4A7C15) & _WORD
        uniform = ((_mixed(self._generator) >> 11) + 1) / (1 << 53)  # above 0, at most 1
        self._skip = int(log(uniform) / log(1 - self._fraction))


def _mixed(value: int) -> int:
    """The output function of the generator SplitMix64."""
    value &= _WORD
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)
