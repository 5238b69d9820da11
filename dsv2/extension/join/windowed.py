"""The window join: joins records with the same key in the same window."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import product
from typing import Any, Generic

from dsv2.base.type_variables import IN1, IN2, OUT
from dsv2.extension.join.functions import (
    JoinFunction,
    JoinType,
    LateRecord,
    WindowJoinFunction,
    reading_declares,
    require_keyed,
    take_late,
    written_by_user,
)
from dsv2.extension.window import TwoInputNonBroadcastWindowStreamProcessFunction, TwoInputWindowContext, WindowStrategy
from dsv2.extension.window.two_input import TwoInputWindowed
from dsv2.model.context import Collector, PartitionedContext
from dsv2.model.output_tag import OutputTag
from dsv2.spi import FailedCallbackError, Position, refuse_returned


class WindowJoin(TwoInputWindowed[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """The join in windows: the ``window`` of a ``JoinInWindow`` function."""

    def __init__(self, strategy: WindowStrategy, function: JoinInWindow[IN1, IN2, OUT]) -> None:
        super().__init__(strategy, function)
        self._join = function

    @property
    def wrapped(self) -> JoinFunction[Any, Any, OUT]:
        return self._join.function

    @property
    def written_by_user(self) -> Collection[object]:
        return written_by_user(self._join.function, *self._join.on_late)

    @property
    def state_layout(self) -> str:
        running = "running " if isinstance(self._join, RunningInWindow) else ""
        return f"{super().state_layout}, for {running}{self._join.join_type.name} joins"

    def dsv2_check_position(self, position: Position) -> None:
        require_keyed("A window join", position)
        super().dsv2_check_position(position)


class JoinInWindow(TwoInputNonBroadcastWindowStreamProcessFunction[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """The window function of a join: all records of one side are partners of all records of the other side."""

    def __init__(
        self,
        function: JoinFunction[Any, Any, OUT],
        join_type: JoinType,
        on_late_left: LateRecord[IN1, OUT] | None,
        on_late_right: LateRecord[IN2, OUT] | None,
    ) -> None:
        self.function = function
        self.join_type = join_type
        self.on_late = on_late_left, on_late_right

    @property
    def dsv2_reading_declares(self) -> bool:
        return reading_declares(self.function, *self.on_late)

    def declare_outputs(self) -> Collection[OutputTag[Any]]:
        return self.function.declare_outputs()

    def on_trigger(
        self, output: Collector[OUT], ctx: PartitionedContext[OUT], window: TwoInputWindowContext[IN1, IN2]
    ) -> None:
        self._join(self._pairs(window.get_all_records1(), window.get_all_records2()), output, ctx, window)

    def _join(self, pairs: Iterable[tuple[Any, Any]], output: Any, ctx: Any, window: Any) -> None:
        function = self.function
        join_pair: Callable[..., object] = function.process_record
        arguments: tuple[Any, ...] = (output, ctx)
        if isinstance(function, WindowJoinFunction):
            join_pair, arguments = function.process_record_in_window, (window, *arguments)
        try:
            for left, right in pairs:
                returned = join_pair(left, right, *arguments)
                if returned is not None:
                    refuse_returned(returned)
        except BaseException as error:
            raise FailedCallbackError(join_pair.__name__) from error

    def on_late_record1(self, record: IN1, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        take_late("on_late_left", self.on_late[0], record, output, ctx)

    def on_late_record2(self, record: IN2, output: Collector[OUT], ctx: PartitionedContext[OUT]) -> None:
        take_late("on_late_right", self.on_late[1], record, output, ctx)

    def _pairs(self, lefts: list[Any], rights: list[Any]) -> Iterable[tuple[Any, Any]]:
        if self.join_type in (JoinType.LEFT, JoinType.FULL):
            rights = rights or [None]
        if self.join_type in (JoinType.RIGHT, JoinType.FULL):
            lefts = lefts or [None]
        return product(lefts, rights)


class ExistenceInWindow(JoinInWindow[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """The window function of SEMI and ANTI joins, which keeps at most one record of the right side."""

    def on_record2(
        self,
        record: IN2,
        output: Collector[OUT],
        ctx: PartitionedContext[OUT],
        window: TwoInputWindowContext[IN1, IN2],
    ) -> None:
        if not window.get_all_records2():
            window.put_record2(record)

    def _pairs(self, lefts: list[Any], rights: list[Any]) -> Iterable[tuple[Any, Any]]:
        is_matched, wants_matched = bool(rights), self.join_type is JoinType.SEMI
        return ((left, None) for left in lefts if is_matched is wants_matched)


class RunningInWindow(JoinInWindow[IN1, IN2, OUT], Generic[IN1, IN2, OUT]):
    """The window function of running joins: a pair is joined when its second record arrives.

    When the window ends, only records without a partner are left to join: all of one side, if the other is empty.
    """

    def on_record1(
        self,
        record: IN1,
        output: Collector[OUT],
        ctx: PartitionedContext[OUT],
        window: TwoInputWindowContext[IN1, IN2],
    ) -> None:
        rights = window.get_all_records2()
        if self.join_type is JoinType.SEMI and rights:
            self._join([(record, None)], output, ctx, window)
            return
        self._join(product((record,), rights), output, ctx, window)
        window.put_record1(record)

    def on_record2(
        self,
        record: IN2,
        output: Collector[OUT],
        ctx: PartitionedContext[OUT],
        window: TwoInputWindowContext[IN1, IN2],
    ) -> None:
        if self.join_type is not JoinType.SEMI:
            self._join(product(window.get_all_records1(), (record,)), output, ctx, window)
            window.put_record2(record)
        elif not window.get_all_records2():
            self._join(product(window.get_all_records1(), (None,)), output, ctx, window)
            window.put_record2(record)

    def _pairs(self, lefts: list[Any], rights: list[Any]) -> Iterable[tuple[Any, Any]]:
        is_matched = self.join_type is JoinType.SEMI or (lefts and rights)
        return () if is_matched else super()._pairs(lefts, rights)
