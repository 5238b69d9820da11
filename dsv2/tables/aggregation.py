"""The aggregation of a changing table by groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic

from dsv2.aggregates import Aggregate, Key
from dsv2.aggregates.result import Adder, DeclaredResult
from dsv2.base.type_variables import IN, OUT
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.model.change import Change
from dsv2.model.context import Collector, PartitionedContext
from dsv2.spi import WrappingFunction
from dsv2.state import StateDeclaration, ValueStateDeclaration
from dsv2.tables.functions import NULL
from dsv2.tables.retraction import Retraction, retraction_of
from dsv2.tables.versions import changes_between, weight_of


class GroupAggregate(OneInputStreamProcessFunction[Change[IN], Change[OUT]], WrappingFunction, Generic[IN, OUT]):
    """Emits the changes of the aggregates of a group, which exists as long as it has rows.

    State has the number of rows, the accumulators, and the result that was emitted last.

    Args:
        result: The declaration.

    Raises:
        PlanError: An aggregate cannot follow changes.
    """

    dsv2_remember_keys = False

    def __init__(self, result: DeclaredResult[OUT]) -> None:
        self.result = result
        self._adder = Adder(result)
        self._aggregates = {name: part for name, part in result.parts.items() if isinstance(part, Aggregate)}
        self._retractions = {name: retraction_of(name, part) for name, part in self._aggregates.items()}
        self._group = ValueStateDeclaration[Any, Any]("group", list[object])

    @property
    def wrapped(self) -> object:
        return self.result

    @property
    def written_by_user(self) -> Collection[object]:
        return [self.result.kind]

    @property
    def state_layout(self) -> str:
        parts = ", ".join(f"{name}={part}" for name, part in self._aggregates.items())
        return f"the number of rows of a group and {parts or 'no aggregates'}"

    def uses_states(self) -> Collection[StateDeclaration]:
        return [self._group]

    def process_record(
        self, record: Change[IN], output: Collector[Change[OUT]], ctx: PartitionedContext[Change[OUT]]
    ) -> None:
        self.process_records([record], output, ctx)

    def process_records(
        self, records: Sequence[Change[IN]], output: Collector[Change[OUT]], ctx: PartitionedContext[Change[OUT]]
    ) -> None:
        state = ctx.state_manager.get_state(self._group)
        empty = [retraction.empty for retraction in self._retractions.values()]
        count, held, before = state.value() or (0, empty, None)
        readers = self._readers(records[0].record)
        for change in records:
            weight = weight_of(change)
            count += weight
            held = [
                one if (value := read(change.record)) is None else retraction.changed(one, value, weight)
                for one, (read, retraction) in zip(held, readers, strict=True)
            ]
        after = self._result(held, ctx.state_manager.current_key) if count > 0 else None
        state.update(None if count == 0 and held == empty else [count, held, after])
        for emitted in changes_between(*([] if row is None else [(row, 1)] for row in (before, after))):
            output.collect(emitted)

    def _readers(self, row: Any) -> list[tuple[Callable[[Any], Any], Retraction]]:
        return [
            (self._adder.reader(name, part, row), self._retractions[name]) for name, part in self._aggregates.items()
        ]

    def _result(self, held: Sequence[Any], key: Any) -> OUT:
        group = None if key == NULL else key
        values: dict[str, Any] = {
            name: part.of(group) for name, part in self.result.parts.items() if isinstance(part, Key)
        }
        for one, (name, retraction) in zip(held, self._retractions.items(), strict=True):
            values[name] = retraction.result(one)
        return self.result.of_values(values)


def fields_of_key(parts: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the fields of a result that hold the key of its group, or all parts of it; None if there are none."""
    keys = {part.index: name for name, part in parts.items() if isinstance(part, Key)}
    if None in keys:
        return (keys[None],)
    names = tuple(keys[index] for index in range(len(keys)) if index in keys)
    return names if names and len(names) == len(keys) else None
