"""Whether what users give can be called as it will be: found out when it is given, not when it is called at last."""

from __future__ import annotations

import inspect

__all__ = ("takes",)


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
