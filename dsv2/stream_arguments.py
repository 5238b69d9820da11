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
    "refuse_selectors",
    "require",
    "require_both_or_neither",
    "require_callable",
    "require_selector",
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


def require(function: object, kind: type) -> Any:
    """``function``. Raises ``PlanError`` unless ``function`` is of the ``kind`` that these streams take."""
    if not isinstance(function, kind):
        raise PlanError(
            f"connect_and_process at {caller_location()} takes a {kind.__name__} for these streams, "
            f"not {kind_of(function)}."
        )
    return function


def require_selector(method: str, selector: object, parameter: str) -> None:
    """Raise ``PlanError`` for a key selector that is given and cannot be called with a record."""
    if selector is not None and not takes(selector, 1):
        raise PlanError(
            f"{method} at {caller_location()}: {parameter} is a callable (record) -> key, not {selector!r}."
        )


def require_both_or_neither(first: object, second: object) -> None:
    """Raise ``PlanError`` unless both outputs have a key selector, or none has."""
    require_selector("process", first, "first_key_selector")
    require_selector("process", second, "second_key_selector")
    if (first is None) != (second is None):
        raise PlanError(
            f"process at {caller_location()}: to keep the stream keyed give both first_key_selector and "
            f"second_key_selector, or neither."
        )


def refuse_selectors(function: str, **selectors: object) -> None:
    """Raise ``PlanError`` if one of ``selectors`` is given, as they are not for a ``function`` of this kind."""
    for parameter, selector in selectors.items():
        if selector is not None:
            wanted = (
                "first_key_selector and second_key_selector" if parameter == "new_key_selector" else "new_key_selector"
            )
            raise PlanError(
                f"process at {caller_location()}: {parameter} is not for {function}: use {wanted} to keep the stream "
                f"keyed."
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
