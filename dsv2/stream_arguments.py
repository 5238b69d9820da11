"""What ``process`` and its kin are given, checked as the pipeline is written: errors name the line of the program."""

from __future__ import annotations

from typing import Any

from dsv2.callables import takes
from dsv2.errors import PlanError
from dsv2.functions import (
    CallableFunction,
    OneInput,
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
)
from dsv2.graph.builder import caller_location, kind_of
from dsv2.spi import ColumnarFunction

__all__ = (
    "one_input",
    "require",
    "require_callable",
    "require_new_key_selector",
    "require_selectors",
    "require_version",
)


def one_input(function: Any) -> OneInput[Any, Any]:
    """``function`` as one with one input. Raises ``PlanError`` for what is none."""
    if isinstance(function, OneInputStreamProcessFunction | ColumnarFunction):
        return function
    if isinstance(function, TwoInputNonBroadcastStreamProcessFunction | TwoInputBroadcastStreamProcessFunction):
        raise PlanError(
            f"process at {caller_location()} takes a one-input or two-output function; {type(function).__name__} "
            f"has two inputs: use connect_and_process."
        )
    if isinstance(function, ProcessFunction):
        raise PlanError(
            f"process at {caller_location()} takes a one-input or two-output function, which "
            f"{type(function).__name__} is not. A window function goes into window(strategy, function)."
        )
    if isinstance(function, type) or not takes(function, 3):
        hint = " (an instance, not the class)" if isinstance(function, type) else ""
        raise PlanError(
            f"process at {caller_location()} takes a process function{hint} or a callable (record, output, ctx), "
            f"not {function!r}."
        )
    return CallableFunction(function)


def require_callable(method: str, function: object) -> None:
    """Raise ``PlanError`` unless ``function`` takes a record."""
    if not takes(function, 1):
        raise PlanError(f"{method} at {caller_location()} takes a callable (record), not {function!r}.")


def require(function: object, kind: type) -> None:
    """Raise ``PlanError`` unless ``function`` is of the ``kind`` that these streams take."""
    if not isinstance(function, kind):
        raise PlanError(
            f"connect_and_process at {caller_location()} takes a {kind.__name__} for these streams, "
            f"not {kind_of(function)}."
        )


def require_selectors(selectors: tuple[Any, ...], count: int) -> None:
    """Raise ``PlanError`` unless there is one key selector for each of ``count`` outputs."""
    if len(selectors) != count or not all(takes(selector, 1) for selector in selectors):
        raise PlanError(
            f"process at {caller_location()}: to keep the stream keyed give one key selector for each of the "
            f"{count} output{'s' if count > 1 else ''}, or none at all."
        )


def require_new_key_selector(selector: object) -> None:
    """Raise ``PlanError`` for what is given and is no key selector."""
    if selector is not None and not takes(selector, 1):
        raise PlanError(
            f"connect_and_process at {caller_location()}: new_key_selector is a callable (record) -> key, "
            f"not {selector!r}."
        )


def require_version(version: object, selectors: tuple[Any, ...]) -> None:
    """Raise ``PlanError`` unless ``version`` is None, or a whole number from 1 on that is said of key selectors."""
    if version is None:
        return
    if not any(selectors):
        raise PlanError(f"{caller_location()}: version is that of a key selector, and there is none here.")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise PlanError(
            f"{caller_location()}: the version of a key selector is a whole number from 1, not {version!r}."
        )
