"""The join of two changing tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from dsv2.base.type_variables import IN1, IN2, OUT
from dsv2.extension.join.functions import JoinType
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction
from dsv2.model.change import Change
from dsv2.model.context import Collector, PartitionedContext
from dsv2.state import MapStateDeclaration, StateDeclaration
from dsv2.tables.versions import Versions, added, repeated, weight_of

_PAIRS = (JoinType.INNER, JoinType.LEFT, JoinType.RIGHT, JoinType.FULL)
_ALONE = (
    (JoinType.LEFT, JoinType.FULL, JoinType.ANTI),
    (JoinType.RIGHT, JoinType.FULL),
)
"""The join types in whose result rows of a side are alone if they have no partner: of the left side, of the right."""


@dataclass(frozen=True)
class JoinKey:
    """The partition of a change: the key by which its row is joined, or the row itself, which has no partner.

    Attributes:
        on: Returns the key, or None.
        identify: Returns the primary key of a row.
    """

    on: Callable[[Any], Any]
    identify: Callable[[Any], Any]

    def __call__(self, change: Change[Any]) -> tuple[bool, Any]:
        key = self.on(change.record)
        return (False, self.identify(change.record)) if key is None else (True, key)


class TableJoin(
    TwoInputNonBroadcastStreamProcessFunction[Change[IN1], Change[IN2], Change[OUT]], Generic[IN1, IN2, OUT]
):
    """Emits the changes of the join of two tables. State has the rows of both by their primary keys.

    A pair is in the result as often as the product of the counts of its rows.

    Args:
        function: Returns the row of a pair. One of its rows may be None.
        join_type: The type.
        identify: Return the primary key of a left and of a right row.
    """

    dsv2_remember_keys = False

    def __init__(
        self,
        function: Callable[[Any, Any], OUT],
        join_type: JoinType,
        identify: tuple[Callable[[Any], Any], Callable[[Any], Any]],
    ) -> None:
        self.function = function
        self.join_type = join_type
        self.identify = identify
        self._rows = [
            MapStateDeclaration[Any, Any](
                f"{side} rows of the {join_type.value} join", object, list[tuple[object, int]]
            )
            for side in ("left", "right")
        ]

    def uses_states(self) -> Collection[StateDeclaration]:
        return self._rows

    def process_record_from_first_input(
        self, record: Change[IN1], output: Collector[Change[OUT]], ctx: PartitionedContext[Change[OUT]]
    ) -> None:
        self._process(0, [record], output, ctx)

    def process_records_from_first_input(
        self, records: Sequence[Change[IN1]], output: Collector[Change[OUT]], ctx: PartitionedContext[Change[OUT]]
    ) -> None:
        self._process(0, records, output, ctx)

    def process_record_from_second_input(
        self, record: Change[IN2], output: Collector[Change[OUT]], ctx: PartitionedContext[Change[OUT]]
    ) -> None:
        self._process(1, [record], output, ctx)

    def process_records_from_second_input(
        self, records: Sequence[Change[IN2]], output: Collector[Change[OUT]], ctx: PartitionedContext[Change[OUT]]
    ) -> None:
        self._process(1, records, output, ctx)

    def _process(self, side: int, changes: Sequence[Change[Any]], output: Any, ctx: Any) -> None:
        net: dict[Any, Versions] = {}
        for change in changes:
            key = self.identify[side](change.record)
            net[key] = added(net.get(key, ()), change.record, weight_of(change))
        has_key, _ = ctx.state_manager.current_key
        for row, weight in self._changes(side, net, ctx) if has_key else self._without_partner(side, net):
            for change in repeated(row, weight):
                output.collect(change)

    def _without_partner(self, side: int, net: Mapping[Any, Versions]) -> Iterator[tuple[OUT, int]]:
        """The changes by rows whose key is None."""
        if self.join_type in _ALONE[side]:
            for changed in net.values():
                for row, weight in changed:
                    yield self._alone(side, row), weight

    def _changes(self, side: int, net: Mapping[Any, Versions], ctx: Any) -> Iterator[tuple[OUT, int]]:
        own, other = (ctx.state_manager.get_state(self._rows[place]) for place in (side, 1 - side))
        partners = [version for versions in other.values() for version in versions]
        had_rows = not own.is_empty()
        is_alone = self._depends(side) and self._is_alone(bool(partners))
        for key, changed in net.items():
            versions = own.get(key, ())
            for row, weight in changed:
                versions = added(versions, row, weight)
                if self.join_type in _PAIRS:
                    for partner, count in partners:
                        pair = (row, partner) if side == 0 else (partner, row)
                        yield self.function(*pair), weight * count
                if is_alone:
                    yield self._alone(side, row), weight
            if versions:
                own.put(key, versions)
            else:
                own.remove(key)
        if self._depends(1 - side) and had_rows != (has_rows := not own.is_empty()):
            sign = 1 if self._is_alone(has_rows) else -1
            for partner, count in partners:
                yield self._alone(1 - side, partner), sign * count

    def _depends(self, side: int) -> bool:
        """Return whether the result has rows of a side alone, depending on whether the other side has any."""
        return self.join_type in _ALONE[side] or (self.join_type is JoinType.SEMI and side == 0)

    def _is_alone(self, has_partner: bool) -> bool:
        return has_partner == (self.join_type is JoinType.SEMI)

    def _alone(self, side: int, row: Any) -> OUT:
        return self.function(row, None) if side == 0 else self.function(None, row)
