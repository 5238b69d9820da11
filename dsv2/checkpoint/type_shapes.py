"""Describes types as JSON values, and decides whether values of one type also have another type.

A shape is a list: the name of a class, then the shapes of its arguments. The parts of a union follow the name ``|``.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, TypeAlias

from dsv2.state.types import UNIONS, resolved

Shape: TypeAlias = list[Any]

Renamed: TypeAlias = Callable[[str], str]
"""Returns the current name of a class that was stored under this name."""

_UNION = "|"
_PARAMETERS = "[]"  # of a Callable
_ANYTHING = {"typing.Any", "builtins.object"}
_WIDER = {"builtins.int": ("builtins.float", "builtins.complex"), "builtins.float": ("builtins.complex",)}


def shape_of(form: object) -> Shape:
    """Describe the type ``form``, as in an annotation. Aliases are replaced by what they stand for."""
    form = resolved(form)
    if isinstance(form, list):
        return [_PARAMETERS, *map(shape_of, form)]
    origin, args = typing.get_origin(form), typing.get_args(form)
    if origin in UNIONS:
        return _union([shape_of(arg) for arg in args])
    if origin is typing.Literal:
        return _union([[f"{name_of(type(arg))} {arg!r}"] for arg in args])
    return [name_of(form if origin is None else origin), *map(shape_of, args)]


def _union(shapes: list[Shape]) -> Shape:
    parts = [part for shape in shapes for part in (shape[1:] if shape[0] == _UNION else [shape])]
    return parts[0] if len(parts) == 1 else [_UNION, *sorted(parts)]


def name_of(form: object) -> str:
    """Return the name of a class, or the text of another part of a type."""
    if form is None:
        return name_of(type(None))
    if form is ...:
        return "..."
    if isinstance(form, typing.ForwardRef):
        return form.__forward_arg__
    is_class = isinstance(form, type) and typing.get_origin(form) is None
    return f"{form.__module__}.{form.__qualname__}" if is_class else str(form)  # type: ignore[attr-defined]


def is_shape(value: object) -> bool:
    """Return whether ``value`` is a shape. For what was read from a file."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], str) and all(map(is_shape, value[1:]))


def shown(shape: Shape) -> str:
    """Return ``shape`` as in an annotation, for messages."""
    name, args = shape[0].removeprefix("builtins."), [shown(arg) for arg in shape[1:]]
    if name == _UNION:
        return " | ".join(args)
    if name == _PARAMETERS:
        return f"[{', '.join(args)}]"
    return f"{name}[{', '.join(args)}]" if args else name


def fits_into(old: Shape, new: Shape, renamed: Renamed) -> bool:
    """Return whether values stored as ``old`` can be read as ``new``: the same type, or a wider one."""
    if {old[0], new[0]} & _ANYTHING:
        return True
    if old[0] == _UNION:
        return all(fits_into(part, new, renamed) for part in old[1:])
    if new[0] == _UNION:
        return any(fits_into(old, part, renamed) for part in new[1:])
    if renamed(old[0]) != new[0]:
        return new[0] in _WIDER.get(old[0], ())
    if len(old) == 1 or len(new) == 1:  # without arguments, such as list
        return True
    return len(old) == len(new) and all(
        fits_into(was, is_now, renamed) for was, is_now in zip(old[1:], new[1:], strict=True)
    )
