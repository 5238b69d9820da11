"""Checks that the callbacks of users have the expected number of parameters and are not generators or coroutines.

The check is made when the plan is built, because some callbacks are first called after days, for example when a window
fires or the input ends.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from types import FunctionType

from dsv2.base.callables import deferred_kind, takes
from dsv2.errors import PlanError
from dsv2.functions import CallableFunction, FilterFunction, FlatMapFunction, MapFunction
from dsv2.functions.handlers import watermark_handlers
from dsv2.graph.plan import Operator
from dsv2.graph.state_detection import names_in
from dsv2.spi import WrappingFunction
from dsv2.state import AggregatingStateDeclaration

_OF_EVENT_TIME = ("on_event_timer", "on_event_time_watermark")
_RESERVED = "dsv2_"  # user fields are state and must not collide with settings of dsv2
_SIMILARITY = 0.85  # from 0 to 1, as for difflib


def check_names(operator: Operator, kind: type) -> None:
    """Raise ``PlanError`` for an unused method of ``kind`` with a name similar to a callback's."""
    ours = [base for base in kind.__mro__ if base.__module__.partition(".")[0] == "dsv2"]
    if not ours:
        return  # the class of a callable object
    own_classes = [base for base in kind.__mro__ if base not in ours]
    callbacks = {name for base in ours for name in vars(base) if not name.startswith("_")}
    _check_reserved(operator, kind, own_classes, callbacks)
    handlers = {handler.method for handler in watermark_handlers(kind)}
    for name in _methods(own_classes):
        if name in callbacks or name in handlers or _is_referred_to(name, own_classes):
            continue
        meant = _meant(name, callbacks)
        if name in _OF_EVENT_TIME:
            advice = (
                "Only event-time functions have it: subclass OneInputEventTimeStreamProcessFunction or a similar class."
            )
        elif meant:
            advice = f"Did you mean {' or '.join(meant)}?"
        elif name.startswith("on_"):
            known = sorted(callback for callback in callbacks if callback.startswith("on_"))
            advice = f"Names that begin with on_ are callbacks; this class has {', '.join(known)}."
        else:
            continue
        raise PlanError(
            f"{operator} at {operator.location}: {kind.__qualname__}.{name} is never called, because this kind of "
            f"function has no such callback. {advice} (Rename a method of your own, for example to _{name}.)"
        )


def _check_reserved(operator: Operator, kind: type, own_classes: Iterable[type], known: set[str]) -> None:
    for name in (name for own in own_classes for name in vars(own)):
        if name.startswith(_RESERVED) and name not in known:
            has = ", ".join(sorted(other for other in known if other.startswith(_RESERVED)))
            raise PlanError(
                f"{operator} at {operator.location}: {kind.__qualname__}.{name} is unknown. Names that begin with "
                f"{_RESERVED} are reserved for settings of functions; this class has {has}."
            )


def _methods(classes: Iterable[type]) -> Iterator[str]:
    for kind in classes:
        for name, value in vars(kind).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                yield name


def _meant(name: str, callbacks: Iterable[str]) -> list[str]:
    """The ``callbacks`` with names similar to ``name``, also in camel case, or with all of its words."""
    by_letters = {callback.replace("_", ""): callback for callback in sorted(callbacks)}
    if found := get_close_matches(name.replace("_", "").lower(), by_letters, 1, _SIMILARITY):
        return [by_letters[found[0]]]
    words = set(name.split("_"))
    return [callback for callback in by_letters.values() if "on" in words and words < set(callback.split("_"))]


def _is_referred_to(name: str, classes: Iterable[type]) -> bool:
    """Return whether another method uses ``name``, which is then a helper method."""
    methods = [method for kind in classes for method in vars(kind).items()]
    return any(name in names_in(value.__code__) for own, value in methods if inspect.isfunction(value) and own != name)


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
