"""Checks that the callbacks of users have the expected number of parameters and are not generators or coroutines.

The check is made when the plan is built, because some callbacks are first called after days, for example when a window
fires or the input ends.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import FunctionType

from dsv2.base.callables import deferred_kind, takes
from dsv2.errors import PlanError
from dsv2.functions import CallableFunction, FilterFunction, FlatMapFunction, MapFunction
from dsv2.graph.callback_names import check_names
from dsv2.graph.plan import Operator
from dsv2.spi import WrappingFunction
from dsv2.state import AggregatingStateDeclaration


def check_callbacks(operator: Operator) -> None:
    """Check the callbacks of ``operator``. Raises ``PlanError`` for one that does not accept the arguments of its base.

    Only the number of arguments is compared; type checkers check the rest.
    """
    for part in _parts(operator):
        kind = type(part)
        for name, original in _overridden(kind):
            callback = getattr(part, name)
            parameters = list(inspect.signature(original).parameters)[1:]
            if not takes(callback, len(parameters)):
                taken = inspect.signature(getattr(kind, name)).parameters
                raise PlanError(
                    f"{operator} at {operator.location}: {kind.__qualname__}.{name} must accept the arguments "
                    f"({', '.join(parameters)}), but it is defined as {name}({', '.join(taken)})."
                )
            if deferred_kind(original) != "coroutine":
                _check_runs(operator, f"{kind.__qualname__}.{name}", callback)
            elif deferred_kind(callback) != "coroutine":
                raise PlanError(
                    f"{operator} at {operator.location}: {kind.__qualname__}.{name} must be a coroutine function. "
                    f"Write it with async def, or use a function that is not async."
                )
        check_names(operator, kind)
    _check_callables(operator)


def _parts(operator: Operator) -> Iterator[object]:
    function = operator.function
    if isinstance(function, WrappingFunction):
        yield from function.written_by_user
    else:
        yield function
    for declaration in function.uses_states():
        if isinstance(declaration, AggregatingStateDeclaration):
            yield declaration.function


def _overridden(kind: type) -> Iterator[tuple[str, FunctionType]]:
    """The callbacks of dsv2 that ``kind`` overrides, with the originals."""
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] == "dsv2":
            for name, method in vars(base).items():
                is_ours = name.startswith("_") or getattr(kind, name) is method
                if inspect.isfunction(method) and not is_ours:
                    yield name, method


def _check_callables(operator: Operator) -> None:
    for selector in (*operator.input_keys, *operator.output_keys):
        if selector is not None:
            _check_runs(operator, "the key selector", selector)
    for part in _parts(operator):
        match part:
            case FlatMapFunction() if deferred_kind(part.function) == "generator":
                pass  # it is iterated over
            case MapFunction() if deferred_kind(part.function) == "generator":
                raise PlanError(
                    f"{operator} at {operator.location}: the function of map is a generator. Use flat_map, which emits "
                    f"every record that it yields."
                )
            case CallableFunction() | MapFunction() | FlatMapFunction():
                _check_runs(operator, "its function", part.function)
            case FilterFunction():
                _check_runs(operator, "its predicate", part.predicate)
            case _ if callable(part):
                _check_runs(operator, "its function", part)


def _check_runs(operator: Operator, what: str, function: object) -> None:
    kind = deferred_kind(function)
    if kind is not None:
        how = (
            "without yield, emit with output.collect(record)"
            if kind == "generator"
            else "with def, not async def, or use an AsyncOneInputStreamProcessFunction"
        )
        raise PlanError(
            f"{operator} at {operator.location}: {what} is a {kind}, so calling it does not run it. Write it {how}."
        )
