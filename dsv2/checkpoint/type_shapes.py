"""Describes types, and decides whether values of one type also have another type."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable
from typing import TypeAlias

from msgspec import Struct

from dsv2.state.types import UNIONS, resolved

Renamed: TypeAlias = Callable[[str], str]
"""Returns the current name of a class that was stored under this name."""

UNION = "|"
_PARAMETERS = "[]"  # of a Callable
_ANYTHING = {"typing.Any", "builtins.object"}
_WIDER = {"builtins.int": ("builtins.float", "builtins.complex"), "builtins.float": ("builtins.complex",)}


class TypeShape(Struct, frozen=True, order=True, array_like=True):
    """A type.

    Attributes:
        name: The name of a class; ``|`` for a union.
        args: The types of its arguments, or the parts of the union.
    """

    name: str
    args: tuple[TypeShape, ...] = ()


def shape_of(form: object) -> TypeShape:
    """Describe the type ``form``, as in an annotation. Aliases are replaced by what they stand for."""
    form = resolved(form)
    if isinstance(form, list):
        return TypeShape(_PARAMETERS, shapes_of(form))
    origin, args = typing.get_origin(form), typing.get_args(form)
    if origin in UNIONS:
        return _union(shapes_of(args))
    if origin is typing.Literal:
        return _union(TypeShape(f"{name_of(type(arg))} {arg!r}") for arg in args)
    return TypeShape(name_of(form if origin is None else origin), shapes_of(args))


def shapes_of(forms: Iterable[object]) -> tuple[TypeShape, ...]:
    """Describe several types."""
    return tuple(map(shape_of, forms))


def _union(shapes: Iterable[TypeShape]) -> TypeShape:
    parts = [part for shape in shapes for part in (shape.args if shape.name == UNION else [shape])]
    return parts[0] if len(parts) == 1 else TypeShape(UNION, tuple(sorted(parts)))


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


def shown(shape: TypeShape) -> str:
    """Return ``shape`` as in an annotation, for messages."""
    name, args = shape.name.removeprefix("builtins."), list(map(shown, shape.args))
    if name == UNION:
        return " | ".join(args)
    if name == _PARAMETERS:
        return f"[{', '.join(args)}]"
    return f"{name}[{', '.join(args)}]" if args else name


def fits_into(old: TypeShape, new: TypeShape, renamed: Renamed) -> bool:
    """Return whether values stored as ``old`` can be read as ``new``: the same type, or a wider one."""
    if {old.name, new.name} & _ANYTHING:
        return True
    if old.name == UNION:
        return all(fits_into(part, new, renamed) for part in old.args)
    if new.name == UNION:
        return any(fits_into(old, part, renamed) for part in new.args)
    if renamed(old.name) != new.name:
        return new.name in _WIDER.get(old.name, ())
    if not old.args or not new.args:  # without arguments, such as list
        return True
    return len(old.args) == len(new.args) and all(
        fits_into(was, is_now, renamed) for was, is_now in zip(old.args, new.args, strict=True)
    )
