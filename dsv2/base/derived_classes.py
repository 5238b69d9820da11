"""Record classes that are made from those of the program: for state, and between operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

_named_tuple: Any = NamedTuple  # type checkers want literals
_derived: dict[Any, Any] = {}


def derived_class(
    kind: type[Any], what: str, fields: tuple[tuple[str, Any], ...], defaults: Mapping[str, Any] | None = None
) -> type[Any]:
    """Return a NamedTuple class with ``fields``, which state and errors name like a class within ``kind``.

    So it is renamed with it. Equal arguments have the same class.

    Args:
        kind: The class from which it is made.
        what: Its name, by which others of ``kind`` differ.
        fields: Its fields, those with defaults last.
        defaults: Their defaults, which follow from the other arguments.
    """
    found = _derived.get((kind, what, fields))
    if found is None:
        found = _derived[kind, what, fields] = _named_tuple(what, list(fields))
        found.__module__, found.__qualname__ = kind.__module__, f"{kind.__qualname__}.{what}"
        found._field_defaults.update(defaults or {})
        found.__new__.__defaults__ = tuple(found._field_defaults.values())
    made: type[Any] = found
    return made


def unused_name(name: str, names: Any) -> str:
    """Return ``name``, with as many underscores at its end as needed to differ from ``names``."""
    while name in names:
        name += "_"
    return name
