"""Window functions that keep no records, but what records have been folded into."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar, cast

from dsv2.context import Collector, PartitionedContext
from dsv2.extension.window.contents import Contents, accumulators, reduced_records
from dsv2.extension.window.contexts import OneInputWindowContext, WindowContext
from dsv2.extension.window.functions import OneInputWindowStreamProcessFunction
from dsv2.extension.window.hand import OneInputWindowInHand
from dsv2.state import AggregateFunction

__all__ = ("AggregatingFunction", "Emit", "FoldingFunction", "ReducingFunction")

T = TypeVar("T")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")
RESULT = TypeVar("RESULT")

Emit: TypeAlias = Callable[[RESULT, WindowContext, PartitionedContext[OUT]], OUT]
"""From the result of a window, the window, and the context (``ctx.state_manager.current_key``) to a record."""


class FoldingFunction(OneInputWindowStreamProcessFunction[IN, OUT], Generic[IN, OUT]):
    """What there is to fold, and what is emitted of it. ``parts``: what of it the user wrote."""

    def __init__(self, *parts: object) -> None:
        self.parts = [part for part in parts if part is not None]

    @abstractmethod
    def new_contents(self) -> Contents:
        """How records are folded."""

    @abstractmethod
    def output_of(self, content: Any, window: WindowContext, ctx: PartitionedContext[OUT]) -> OUT:
        """What a window that holds ``content`` emits."""

    def on_trigger(
        self, output: Collector[OUT], ctx: PartitionedContext[OUT], window: OneInputWindowContext[IN]
    ) -> None:
        content = cast(OneInputWindowInHand, window).content
        output.collect(self.output_of(content, window, ctx))


class AggregatingFunction(FoldingFunction[IN, OUT], Generic[IN, ACC, RESULT, OUT]):
    """``aggregate``. Without ``emit`` the result itself is emitted."""

    def __init__(self, function: AggregateFunction[IN, ACC, RESULT], emit: Emit[RESULT, OUT] | None) -> None:
        super().__init__(function, emit)
        self._function = function
        self._emit = emit

    def new_contents(self) -> Contents:
        return accumulators(self._function)

    def output_of(self, content: Any, window: WindowContext, ctx: PartitionedContext[OUT]) -> OUT:
        result: Any = self._function.get_result(content)
        return result if self._emit is None else self._emit(result, window, ctx)


class ReducingFunction(FoldingFunction[T, OUT], Generic[T, OUT]):
    """``reduce``. Without ``emit`` the reduced record itself is emitted."""

    def __init__(self, function: Callable[[T, T], T], emit: Emit[T, OUT] | None) -> None:
        super().__init__(function, emit)
        self._function = function
        self._emit = emit

    def new_contents(self) -> Contents:
        return reduced_records(self._function)

    def output_of(self, content: Any, window: WindowContext, ctx: PartitionedContext[OUT]) -> OUT:
        return content if self._emit is None else self._emit(content, window, ctx)
