"""Checks of the arguments of stream methods while the pipeline is built. Errors name the user's file and line."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeAlias

from dsv2.base.callables import takes
from dsv2.base.type_variables import IN, OUT
from dsv2.checks.arguments import as_milliseconds
from dsv2.errors import PlanError
from dsv2.functions import (
    CallableFunction,
    OneInput,
    OneInputStreamProcessFunction,
    ProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
)
from dsv2.graph import WaitForBroadcast
from dsv2.graph.builder import caller_location, kind_of
from dsv2.model.context import Collector, PartitionedContext
from dsv2.spi import AsyncFunction, ColumnarFunction, TwoInputDeclaration
from dsv2.state import StateTtl

OneInputOrCallable: TypeAlias = OneInput[IN, OUT] | Callable[[IN, Collector[OUT], PartitionedContext[OUT]], None]
AnyTwoInput: TypeAlias = (
    TwoInputNonBroadcastStreamProcessFunction[IN, Any, OUT] | TwoInputBroadcastStreamProcessFunction[IN, Any, OUT]
)


def one_input(function: Any) -> OneInput[Any, Any]:
    """Convert ``function`` to a one-input function. Raises ``PlanError`` if that is not possible."""
    if isinstance(function, OneInputStreamProcessFunction | ColumnarFunction | AsyncFunction):
        return function
    if isinstance(function, TwoInputNonBroadcastStreamProcessFunction | TwoInputBroadcastStreamProcessFunction):
        raise PlanError(
            f"process at {caller_location()} takes a one-input or two-output function; {type(function).__name__} "
            f"has two inputs. Use connect_and_process."
        )
    if isinstance(function, ProcessFunction):
        raise PlanError(
            f"process at {caller_location()} takes a one-input or two-output function, not "
            f"{type(function).__name__}. A window function requires windows: window(strategy).process(function)."
        )
    if isinstance(function, type) or not takes(function, 3):
        hint = " (an instance, not the class)" if isinstance(function, type) else ""
        raise PlanError(
            f"process at {caller_location()} takes a process function{hint} or a callable (record, output, ctx), "
            f"not {function!r}."
        )
    return CallableFunction(function)


def ttl_of(ttl: timedelta | StateTtl | None) -> StateTtl | None:
    """Return a time to live, that of a duration in processing time."""
    if ttl is None or isinstance(ttl, StateTtl):
        return ttl
    as_milliseconds(ttl, "ttl", at_least=1)
    return StateTtl(ttl)


def require_callable(method: str, function: object) -> None:
    """Raise ``PlanError`` unless ``function`` can be called with a record."""
    if not takes(function, 1):
        raise PlanError(f"{method} at {caller_location()} takes a callable (record), not {function!r}.")


def require(function: object, kind: type, *others: type) -> Any:
    """Return ``function``. Raises ``PlanError`` unless it is of the ``kind`` that these streams require."""
    if isinstance(function, TwoInputDeclaration):
        raise function.not_keyed
    if not isinstance(function, (kind, *others)):
        raise PlanError(
            f"connect_and_process at {caller_location()} takes a {kind.__name__} for these streams, "
            f"not {kind_of(function)}."
        )
    return function


def require_selector(method: str, selector: object, parameter: str) -> None:
    """Raise ``PlanError`` unless ``selector`` is None or can be called with a record."""
    if selector is not None and not takes(selector, 1):
        raise PlanError(
            f"{method} at {caller_location()}: {parameter} must be a callable (record) -> key, not {selector!r}."
        )


def require_both_or_neither(first: object, second: object) -> None:
    """Raise ``PlanError`` if only one of the two outputs has a key selector."""
    require_selector("process", first, "first_key_selector")
    require_selector("process", second, "second_key_selector")
    if (first is None) != (second is None):
        raise PlanError(
            f"process at {caller_location()}: give both first_key_selector and second_key_selector to keep the stream "
            f"keyed, or neither."
        )


def refuse_selectors(function: str, **selectors: object) -> None:
    """Raise ``PlanError`` if one of ``selectors`` is given. ``function`` names the kind of function in the error."""
    for parameter, selector in selectors.items():
        if selector is not None:
            wanted = (
                "first_key_selector and second_key_selector" if parameter == "new_key_selector" else "new_key_selector"
            )
            raise PlanError(
                f"process at {caller_location()}: {parameter} does not apply to {function}. Use {wanted} to keep the "
                f"stream keyed."
            )


def require_version(version: object, selectors: tuple[Any, ...]) -> None:
    """Raise ``PlanError`` unless ``version`` is None, or a whole number of at least 1 that goes with a key selector."""
    if version is None:
        return
    if not any(selectors):
        raise PlanError(f"{caller_location()}: version requires a key selector. Give a key selector or remove version.")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise PlanError(
            f"{caller_location()}: the version of a key selector must be a whole number of at least 1, not {version!r}."
        )


def refuse_wait(wait: WaitForBroadcast | None) -> None:
    """Raise ``PlanError`` if ``wait`` is given for a connection without a broadcast side."""
    if wait is not None:
        raise PlanError(
            f"connect_and_process at {caller_location()}: wait_for_broadcast requires a broadcast stream. Call "
            f"broadcast() on the side to be read first."
        )
