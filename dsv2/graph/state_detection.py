"""Detection of functions with state, as far as their class shows."""

from __future__ import annotations

import dis
import functools
from collections.abc import Hashable, Iterator
from enum import Enum
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, cast

from typing_extensions import Format, get_annotations

from dsv2.functions import CallableFunction, ProcessFunction
from dsv2.graph.sink_checks import SinkCheck
from dsv2.model.async_resource import AsyncResource
from dsv2.model.resource import Resource
from dsv2.sinks import ParallelSink, Sink
from dsv2.sources import BaseSource
from dsv2.spi import BatchFunction, WrappingFunction

_PLAIN = (
    int, float, complex, str, bytes, type(None), Enum, type, FunctionType, BuiltinFunctionType, ModuleType, Resource,
    AsyncResource,
)  # fmt: skip
_CLASSES = 256  # whose code has been read lately: a job reads that of its functions at each restore
_STORES = ("STORE_ATTR", "DELETE_ATTR")
_STORING_CALLS = {"setattr", "delattr", "__dict__", "__setattr__"}


def may_keep_state(body: ProcessFunction | BaseSource[Any] | Sink[Any]) -> bool:
    """False only if ``body`` certainly has no state to restore.

    Sources have offsets. A ``ParallelSink`` records what it has written under its uid.
    """
    if not isinstance(body, ProcessFunction):
        return isinstance(body, BaseSource | ParallelSink)
    if isinstance(body, BatchFunction) and (body.keeps_nothing or body.keeps_within_portions):
        return False
    if isinstance(body, SinkCheck):
        return False
    if isinstance(body, CallableFunction):
        return not isinstance(body.function, FunctionType)
    if isinstance(body, WrappingFunction) or body.uses_states():
        return True
    return _has_timers(body) or _has_fields(body)


def _has_timers(function: ProcessFunction) -> bool:
    callbacks = (getattr(type(function), name, None) for name in ("on_processing_timer", "on_event_timer"))
    return any(callback is not None and not callback.__module__.startswith("dsv2.") for callback in callbacks)


def _has_fields(function: ProcessFunction) -> bool:
    """Return whether ``function`` has fields that can change."""
    kind = type(function)
    if kind.__getstate__ is not object.__getstate__ or not all(map(_is_constant, vars(function).values())):
        return True
    return _methods_store(cast(Hashable, kind))


@functools.lru_cache(maxsize=_CLASSES)
def _methods_store(kind: type) -> bool:
    return any(
        _stores(method.__code__)
        for base in kind.__mro__
        for name, method in vars(base).items()
        if isinstance(method, FunctionType) and name != "__init__"
    )


def mentioned_names(function: ProcessFunction) -> set[str]:
    """The fields that ``function`` has or may use: all names in the object and in the code of its class."""
    called = function.wrapped if isinstance(function, WrappingFunction) else function
    own = set(vars(called)) if hasattr(called, "__dict__") else set()
    return own | _names_of_class(cast(Hashable, type(called)))


@functools.lru_cache(maxsize=_CLASSES)
def _names_of_class(kind: type) -> frozenset[str]:
    names = set[str]()
    for base in kind.__mro__[:-1]:
        names |= {*vars(base), *get_annotations(base, format=Format.STRING)}
        for member in vars(base).values():
            for method in (member, *(getattr(member, part, None) for part in ("fget", "fset", "__func__"))):
                if isinstance(method, FunctionType):
                    names |= names_in(method.__code__)
    return frozenset(names)


def _is_constant(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_constant, value))
    parameters = getattr(type(value), "__dataclass_params__", None)
    return isinstance(value, _PLAIN) or (parameters is not None and parameters.frozen)


def _stores(code: CodeType) -> bool:
    return not _STORING_CALLS.isdisjoint(names_in(code)) or any(
        instruction.opname in _STORES for part in _with_inner(code) for instruction in dis.get_instructions(part)
    )


def names_in(code: CodeType) -> set[str]:
    """The names and strings in ``code`` and in the functions nested in it."""
    return {
        name
        for part in _with_inner(code)
        for name in (*part.co_names, *(constant for constant in part.co_consts if isinstance(constant, str)))
    }


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
