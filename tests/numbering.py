"""A function that numbers the records of each key, which shows what a job loses or repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from dsv2 import Collector, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.state import StateDeclaration, StateDeclarations

NTH = StateDeclarations.value_state("nth", int, default=0)


class Numbering(OneInputStreamProcessFunction[Any, Any]):
    """Emits ``made`` of the key, the record, and its number among those of the key."""

    def __init__(self, made: Callable[[Any, Any, int], Any]) -> None:
        self._made = made

    def uses_states(self) -> list[StateDeclaration]:
        return [NTH]

    def process_record(self, record: Any, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        nth = ctx.state_manager.get_state(NTH)
        nth.update(nth.value() + 1)
        output.collect(self._made(ctx.state_manager.current_key, record, nth.value()))


def numbered(keys: Iterable[Any]) -> list[tuple[Any, int]]:
    """The emitted records for these ``keys``: each key and number, sorted."""
    return sorted((key, nth) for key, size in Counter(keys).items() for nth in range(1, size + 1))
