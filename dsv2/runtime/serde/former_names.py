"""The former names of classes that have been renamed or moved."""

from __future__ import annotations

from collections.abc import Mapping


def current_name(name: str, former_names: Mapping[str, str]) -> str:
    """Return what the class with the dotted ``name`` is called now.

    Args:
        name: Module and qualified name, as they were when a value was stored.
        former_names: Former name -> current name. Classes that are nested in a renamed class are renamed with it.
    """
    outer, nested = name, ""
    while outer:
        if (found := former_names.get(outer)) is not None:
            return found + nested
        outer, dot, inner = outer.rpartition(".")
        nested = f"{dot}{inner}{nested}"
    return name
