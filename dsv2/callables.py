"""What users give to be called: whether it can be called as it will be, found out when it is given."""

from __future__ import annotations

import inspect
from functools import partial

__all__ = ("deferred_kind", "takes")


def takes(function: object, count: int) -> bool:
    """Whether ``function`` is a callable that ``count`` positional arguments fit; so it is if it does not say."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*[None] * count)
    except ValueError:  # some built-in ones have no signature
        return True
    except TypeError:
        return False
    return True


def deferred_kind(function: object) -> str | None:
    """``"generator"`` or ``"coroutine"`` if a call of ``function`` runs none of its code yet; None if it does."""
    while isinstance(function, partial):
        function = function.func
    of_object = inspect.getattr_static(type(function), "__call__", None)
    for code in (function, of_object):
        if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
            return "generator"
        if inspect.iscoroutinefunction(code):
            return "coroutine"
    return None
