"""Checks of the callables that users pass, made when they are passed and not at their first call."""

from __future__ import annotations

import inspect
from functools import partial


def takes(function: object, count: int) -> bool:
    """Return whether ``function`` accepts ``count`` positional arguments. True for callables without a signature."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*[None] * count)
    except ValueError:  # some built-in functions have no signature
        return True
    except TypeError:
        return False
    return True


def deferred_kind(function: object) -> str | None:
    """``"generator"`` or ``"coroutine"`` if calling ``function`` does not run its body; None otherwise."""
    while isinstance(function, partial):
        function = function.func
    of_object = inspect.getattr_static(type(function), "__call__", None)
    for code in (function, of_object):
        if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
            return "generator"
        if inspect.iscoroutinefunction(code):
            return "coroutine"
    return None
