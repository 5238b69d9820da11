"""Record classes that are made from those of the program: for state, and between operators."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

_named_tuple: Any = NamedTuple  # type checkers want literals


def derived_class(kind: type[Any], what: str, fields: tuple[tuple[str, Any], ...]) -> type[Any]:
    """Return a NamedTuple class with ``fields``, which belongs to the module of ``kind``: state names it.

    Equal arguments have the same class. ``what`` is a part of its name, by which others differ.
    """
    plain: type = kind  # which is hashable for type checkers
    return _derived(plain, what, fields)


@cache
def _derived(kind: type, what: str, fields: tuple[tuple[str, Any], ...]) -> type[Any]:
    name = f"{kind.__qualname__}_{what}"
    made: type[Any] = _named_tuple(name, list(fields))
    made.__module__, made.__qualname__ = kind.__module__, name
    return made


def unused_name(name: str, names: Any) -> str:
    """Return ``name``, with as many underscores at its end as needed to differ from ``names``."""
    while name in names:
        name += "_"
    return name
