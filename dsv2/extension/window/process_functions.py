"""The process functions of windowed streams, made from windows and a function (Flink ``BuiltinFuncs.window``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dsv2.base.callables import takes
from dsv2.errors import PlanError
from dsv2.extension.window.functions import (
    AggregatingFunction,
    EmitResult,
    OneInputWindowStreamProcessFunction,
    ReducingFunction,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    TwoOutputWindowStreamProcessFunction,
)
from dsv2.extension.window.one_input import OneInputWindowed
from dsv2.extension.window.strategy import SessionWindowStrategy, WindowStrategy
from dsv2.extension.window.two_input import TwoInputWindowed
from dsv2.extension.window.two_output import TwoOutputWindowed
from dsv2.extension.window.window_operator import Windowed
from dsv2.graph.builder import caller_location
from dsv2.model.output_tag import OutputTag
from dsv2.state import AggregateFunction

LateTags = Sequence[OutputTag[Any]]

_KINDS: tuple[tuple[type, type[Windowed[Any]]], ...] = (
    (OneInputWindowStreamProcessFunction, OneInputWindowed),
    (TwoInputNonBroadcastWindowStreamProcessFunction, TwoInputWindowed),
    (TwoOutputWindowStreamProcessFunction, TwoOutputWindowed),
)


def windowed(strategy: WindowStrategy, function: object, late_tags: LateTags = ()) -> Any:
    """Create the process function that runs a window function.

    Raises:
        PlanError: ``function`` is not a window function, or ``late_tags`` do not fit it.
    """
    for base, kind in _KINDS:
        if isinstance(function, base):
            _check_late_tags(kind, function, late_tags)
            return kind(strategy, function, late_tags)
    raise PlanError(
        f"process at {caller_location()} takes a window function (an instance) in windows, not {function!r}."
    )


def aggregated(
    strategy: WindowStrategy, function: Any, emit: EmitResult[Any, Any] | None = None, late_tags: LateTags = ()
) -> Any:
    """Create the process function that aggregates the records of each window incrementally.

    Raises:
        PlanError: An argument is invalid, or ``function`` has no ``merge`` for sessions.
    """
    where = f"aggregate at {caller_location()}"
    if isinstance(strategy, SessionWindowStrategy) and type(function).merge is AggregateFunction.merge:
        raise PlanError(
            f"{where}: sessions merge, but the function cannot merge accumulators. Define merge, or pass merge=... to "
            f"aggregate_of."
        )
    _check_emit(where, emit)
    return windowed(strategy, AggregatingFunction(function, emit), late_tags)


def reduced(
    strategy: WindowStrategy,
    function: Callable[[Any, Any], Any],
    emit: EmitResult[Any, Any] | None = None,
    late_tags: LateTags = (),
) -> Any:
    """Create the process function that reduces the records of each window incrementally.

    Raises:
        PlanError: An argument is invalid.
    """
    where = f"reduce at {caller_location()}"
    if isinstance(function, type) or not takes(function, 2):
        raise PlanError(f"{where} takes a callable (record, record) -> record, not {function!r}.")
    _check_emit(where, emit)
    return windowed(strategy, ReducingFunction(function, emit), late_tags)


def _check_emit(where: str, emit: object) -> None:
    if emit is not None and not takes(emit, 3):
        raise PlanError(f"{where}: emit must be a callable (result, window, ctx) -> record, not {emit!r}.")


def _check_late_tags(kind: type[Windowed[Any]], function: object, tags: LateTags) -> None:
    if not tags:
        return
    shape = kind.shape
    for name in shape.on_late_record:
        if getattr(type(function), name) is not getattr(shape.base, name):
            raise PlanError(
                f"with_late_output: {type(function).__name__} defines {name}, which would never be called. Remove "
                f"{name} or with_late_output."
            )
    if len(tags) != len(shape.on_late_record) or not all(isinstance(tag, OutputTag) for tag in tags):
        raise PlanError(f"with_late_output takes an OutputTag for each input of the function, not {tags!r}.")
