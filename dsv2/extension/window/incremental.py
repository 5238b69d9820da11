"""Window functions that aggregate or reduce records incrementally instead of storing them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeAlias, TypeVar

from dsv2.base.type_variables import ACC, IN, OUT, T
from dsv2.errors import InternalError
from dsv2.extension.window.contents import Contents, accumulators, reduced_records
from dsv2.extension.window.contexts import OneInputWindowContext, WindowContext
from dsv2.extension.window.functions import OneInputWindowStreamProcessFunction
from dsv2.model.context import Collector, PartitionedContext
from dsv2.state import AggregateFunction

RESULT = TypeVar("RESULT")

EmitResult: TypeAlias = Callable[[RESULT, WindowContext, PartitionedContext[OUT]], OUT]
"""Creates a record from the result of a window, the window, and the context (``ctx.state_manager.current_key``)."""


class IncrementalFunction(OneInputWindowStreamProcessFunction[IN, OUT], Generic[IN, OUT]):
    """Base class of the window functions of ``aggregate`` and ``reduce``."""

    def __init__(self, function: object, emit: EmitResult[Any, OUT] | None) -> None:
        self._function = function
        self.emit = emit
        """Creates the emitted record from the result. None: the result is emitted."""

    @property
    def dsv2_reading_declares(self) -> bool:
        return self.emit is not None

    @property
    @abstractmethod
    def result_of(self) -> Callable[[Any], Any] | None:
        """Computes the result of a window from its content. None: the content is the result."""

    @property
    def written_by_user(self) -> Collection[object]:
        """See ``WrappingFunction``."""
        return (self._function,) if self.emit is None else (self._function, self.emit)

    @abstractmethod
    def new_contents(self) -> Contents:
        """The kind of content of its windows."""

    def on_trigger(
        self, output: Collector[OUT], ctx: PartitionedContext[OUT], window: OneInputWindowContext[IN]
    ) -> None:
        raise InternalError("on_trigger of an IncrementalFunction is replaced by IncrementalCallbacks.")


class AggregatingFunction(IncrementalFunction[IN, OUT], Generic[IN, ACC, RESULT, OUT]):
    """The window function of ``aggregate``."""

    _function: AggregateFunction[IN, ACC, RESULT]

    def __init__(self, function: AggregateFunction[IN, ACC, RESULT], emit: EmitResult[RESULT, OUT] | None) -> None:
        super().__init__(function, emit)

    @property
    def result_of(self) -> Callable[[Any], Any]:
        return self._function.get_result

    def new_contents(self) -> Contents:
        return accumulators(self._function)


class ReducingFunction(IncrementalFunction[T, OUT], Generic[T, OUT]):
    """The window function of ``reduce``."""

    result_of = None
    _function: Callable[[T, T], T]

    def __init__(self, function: Callable[[T, T], T], emit: EmitResult[T, OUT] | None) -> None:
        super().__init__(function, emit)

    def new_contents(self) -> Contents:
        return reduced_records(self._function)
