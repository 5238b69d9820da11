"""Functions that create a process function from windows and a function (Flink ``BuiltinFuncs.window``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from dsv2.base.callables import takes
from dsv2.errors import PlanError
from dsv2.extension.window.functions import (
    OneInputWindowStreamProcessFunction,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    TwoOutputWindowStreamProcessFunction,
)
from dsv2.extension.window.incremental import AggregatingFunction, EmitResult, ReducingFunction
from dsv2.extension.window.one_input import OneInputWindowed
from dsv2.extension.window.strategy import SessionWindowStrategy, WindowStrategy
from dsv2.extension.window.two_input import TwoInputWindowed
from dsv2.extension.window.two_output import TwoOutputWindowed
from dsv2.extension.window.window_operator import Windowed
from dsv2.functions import (
    OneInputStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
)
from dsv2.model.output_tag import OutputTag
from dsv2.state import AggregateFunction

T = TypeVar("T")
IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
ACC = TypeVar("ACC")
RESULT = TypeVar("RESULT")
OUT = TypeVar("OUT")
OUT1 = TypeVar("OUT1")
OUT2 = TypeVar("OUT2")


@overload
def window(
    strategy: WindowStrategy, function: OneInputWindowStreamProcessFunction[IN, OUT]
) -> OneInputStreamProcessFunction[IN, OUT]: ...
@overload
def window(
    strategy: WindowStrategy, function: TwoInputNonBroadcastWindowStreamProcessFunction[IN1, IN2, OUT]
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
@overload
def window(
    strategy: WindowStrategy, function: TwoOutputWindowStreamProcessFunction[IN, OUT1, OUT2]
) -> TwoOutputStreamProcessFunction[IN, OUT1, OUT2]: ...
def window(strategy: Any, function: Any) -> Any:
    """Create a process function that runs a window function, for ``process`` or ``connect_and_process``.

    It requires a keyed stream, where each key has its own windows, or a global stream. ``WindowStrategy.global_()``
    also runs on non-keyed streams. Other streams are refused while the plan is built.

    Args:
        strategy: The windows.
        function: The window function.

    Raises:
        PlanError: ``strategy`` is not a ``WindowStrategy``, or ``function`` is not a window function.
    """
    _check_strategy("window", strategy)
    if isinstance(function, OneInputWindowStreamProcessFunction):
        return OneInputWindowed(strategy, function)
    if isinstance(function, TwoInputNonBroadcastWindowStreamProcessFunction):
        return TwoInputWindowed(strategy, function)
    if isinstance(function, TwoOutputWindowStreamProcessFunction):
        return TwoOutputWindowed(strategy, function)
    raise PlanError(f"window takes a window function (an instance), not {function!r}.")


@overload
def aggregate(
    strategy: WindowStrategy, function: AggregateFunction[IN, ACC, OUT]
) -> OneInputStreamProcessFunction[IN, OUT]: ...
@overload
def aggregate(
    strategy: WindowStrategy, function: AggregateFunction[IN, ACC, RESULT], emit: EmitResult[RESULT, OUT]
) -> OneInputStreamProcessFunction[IN, OUT]: ...
def aggregate(strategy: Any, function: Any, emit: Any = None) -> Any:
    """Aggregate the records of each window incrementally. Only accumulators are stored.

    Runs on the same streams as ``window``.

    Args:
        strategy: The windows.
        function: The aggregation. Sessions require a function with ``merge``.
        emit: Called with (result, window, ctx). Returns the record to emit, for example with the key and the time of
            the window. None (default): the result is emitted.

    Raises:
        PlanError: An argument is invalid, or ``function`` has no ``merge`` for sessions.
    """
    _check_strategy("aggregate", strategy)
    if not isinstance(function, AggregateFunction):
        raise PlanError(f"aggregate takes an AggregateFunction (an instance, or aggregate_of(...)), not {function!r}.")
    if isinstance(strategy, SessionWindowStrategy) and type(function).merge is AggregateFunction.merge:
        raise PlanError(
            "aggregate: sessions merge, but the function cannot merge accumulators. Define merge, or pass merge=... to "
            "aggregate_of."
        )
    _check_emit("aggregate", emit)
    return OneInputWindowed(strategy, AggregatingFunction(function, emit))


@overload
def reduce(strategy: WindowStrategy, function: Callable[[T, T], T]) -> OneInputStreamProcessFunction[T, T]: ...
@overload
def reduce(
    strategy: WindowStrategy, function: Callable[[T, T], T], emit: EmitResult[T, OUT]
) -> OneInputStreamProcessFunction[T, OUT]: ...
def reduce(strategy: Any, function: Any, emit: Any = None) -> Any:
    """Reduce the records of each window incrementally: ``function(function(first, second), third)`` and so on.

    Runs on the same streams as ``window``.

    Args:
        strategy: The windows.
        function: Reduces two records to one. It must not modify its arguments.
        emit: As for ``aggregate``.

    Raises:
        PlanError: An argument is invalid.
    """
    _check_strategy("reduce", strategy)
    if isinstance(function, type) or not takes(function, 2):
        raise PlanError(f"reduce takes a callable (record, record) -> record, not {function!r}.")
    _check_emit("reduce", emit)
    return OneInputWindowed(strategy, ReducingFunction(function, emit))


@overload
def with_late_output(
    function: OneInputStreamProcessFunction[T, T], tag: OutputTag[T], /
) -> OneInputStreamProcessFunction[T, T]: ...
@overload
def with_late_output(
    function: OneInputStreamProcessFunction[IN, OUT], tag: OutputTag[IN], /
) -> OneInputStreamProcessFunction[IN, OUT]: ...
@overload
def with_late_output(
    function: TwoOutputStreamProcessFunction[IN, OUT1, OUT2], tag: OutputTag[IN], /
) -> TwoOutputStreamProcessFunction[IN, OUT1, OUT2]: ...
@overload
def with_late_output(
    function: TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT],
    first_tag: OutputTag[IN1],
    second_tag: OutputTag[IN2],
    /,
) -> TwoInputNonBroadcastStreamProcessFunction[IN1, IN2, OUT]: ...
def with_late_output(function: Any, /, *tags: Any) -> Any:
    """Emit late records to a side output: ``result.side_output(tag)``. (Flink ``sideOutputLateData``.)

    Args:
        function: The result of ``window``, ``aggregate`` or ``reduce``.
        tags: The tag, or for a function with two inputs the tag of each of them.

    Raises:
        PlanError: ``function`` is something else, its window function defines ``on_late_record``, or there is not one
            tag for each input.
    """
    if not isinstance(function, Windowed):
        raise PlanError(f"with_late_output takes the result of window, aggregate or reduce, not {function!r}.")
    inner, shape = function.function, function.shape
    for name in shape.on_late_record:
        if getattr(type(inner), name) is not getattr(shape.base, name):
            raise PlanError(
                f"with_late_output: {type(inner).__name__} defines {name}, which would never be called. Remove {name} "
                f"or with_late_output."
            )
    if len(tags) != len(shape.on_late_record) or not all(isinstance(tag, OutputTag) for tag in tags):
        raise PlanError(f"with_late_output takes an OutputTag for each input of the function, not {tags!r}.")
    return type(function)(function.strategy, inner, tags)


def _check_strategy(what: str, strategy: object) -> None:
    if not isinstance(strategy, WindowStrategy):
        raise PlanError(f"{what} takes a WindowStrategy, such as WindowStrategy.tumbling(size), not {strategy!r}.")


def _check_emit(what: str, emit: object) -> None:
    if emit is not None and not takes(emit, 3):
        raise PlanError(f"{what}: emit must be a callable (result, window, ctx) -> record, not {emit!r}.")
