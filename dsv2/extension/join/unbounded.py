"""The unbounded join: joins all records with the same key, however far apart they arrive (FLIP-500)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import product
from typing import Any, Generic

from dsv2.base.type_variables import IN1, IN2, OUT
from dsv2.extension.join.functions import JoinFunction, JoinProcessFunction
from dsv2.functions import TwoInputNonBroadcastStreamProcessFunction
from dsv2.model.context import Collector, PartitionedContext
from dsv2.spi import FailedCallbackError, refuse_returned
from dsv2.state import ListStateDeclaration, StateDeclaration, StateDeclarations, StateTtl

BOTH_SIDES = "the records of both sides of a join"
"""The state layout of joins over all time, on records and on columns, which store the same."""


class UnboundedJoin(
    JoinProcessFunction, TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT], Generic[IN1, IN2, OUT]
):
    """The join that ``join`` creates.

    A new record is joined with the records of the other side in the order of their arrival, then stored.
    """

    _described = "A join"

    def __init__(self, function: JoinFunction[IN1, IN2, OUT], ttl: StateTtl | None) -> None:
        super().__init__(function)
        self._left: ListStateDeclaration[Any] = StateDeclarations.list_state("left", object, ttl=ttl)
        self._right: ListStateDeclaration[Any] = StateDeclarations.list_state("right", object, ttl=ttl)

    @property
    def state_layout(self) -> str:
        return BOTH_SIDES

    def uses_states(self) -> Collection[StateDeclaration]:
        return self._left, self._right

    def process_record_from_first_input(
        self, record: IN1, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        self.process_records_from_first_input((record,), output, ctx)

    def process_records_from_first_input(
        self, records: Sequence[IN1], output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        states = ctx.state_manager
        join_pair: Callable[..., object] = self._function.process_record
        partners = states.get_state(self._right).get()
        try:
            for left, right in product(records, partners):
                returned = join_pair(left, right, output, ctx)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            raise FailedCallbackError("process_record") from error
        states.get_state(self._left).add_all(records)

    def process_record_from_second_input(
        self, record: IN2, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        self.process_records_from_second_input((record,), output, ctx)

    def process_records_from_second_input(
        self, records: Sequence[IN2], output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        states = ctx.state_manager
        join_pair: Callable[..., object] = self._function.process_record
        partners = states.get_state(self._left).get()
        try:
            for right, left in product(records, partners):
                returned = join_pair(left, right, output, ctx)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            raise FailedCallbackError("process_record") from error
        states.get_state(self._right).add_all(records)
