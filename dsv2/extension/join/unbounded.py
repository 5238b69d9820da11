"""The join over all time: records meet that have the same key, however far apart they come (FLIP-500)."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from dsv2.context import Collector, PartitionedContext
from dsv2.extension.join.functions import JoinFunction, require_keyed
from dsv2.functions import Position, TwoInputNonBroadcastStreamProcessFunction

__all__ = ("UnboundedJoin",)

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")

_LEFT, _RIGHT = "left", "right"


class UnboundedJoin(TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """Made by ``join``. A new record meets those of the other side in the order in which they came; then it is kept."""

    remember_keys = False

    def __init__(self, function: JoinFunction[IN1, IN2, OUT]) -> None:
        self._function = function

    def check_position(self, position: Position) -> None:
        require_keyed("A join", position)

    def process_record_from_first_input(
        self, record: IN1, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        state: Any = ctx.state_manager
        entry = state.entry()
        join_pair = self._function.process_record
        for right in entry.get(_RIGHT, ()):
            join_pair(record, right, output, ctx)
        entry.setdefault(_LEFT, []).append(record)

    def process_record_from_second_input(
        self, record: IN2, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        state: Any = ctx.state_manager
        entry = state.entry()
        join_pair = self._function.process_record
        for left in entry.get(_LEFT, ()):
            join_pair(left, record, output, ctx)
        entry.setdefault(_RIGHT, []).append(record)
