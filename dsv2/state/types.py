"""Inspection of the types in a declaration: ``int``, ``list[str]``, ``Order | None``, a dataclass."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator
from typing import Any, NewType, TypeVar

from typing_extensions import TypeAliasType, is_typeddict

from dsv2.errors import StateDeclarationError

UNIONS = (typing.Union, types.UnionType)


def check_type(form: object, owner: str) -> None:
    """Raise ``StateDeclarationError`` for ``owner`` if ``form`` or a part of it is not a type."""
    if form is None or form is Any or isinstance(form, type | NewType | TypeAliasType):
        return
    if typing.get_origin(form) is None or isinstance(form, TypeVar):
        quoted = isinstance(form, str | typing.ForwardRef)
        advice = "Give the class itself, not its name" if quoted else "Give a class, or a type such as list[...]"
        raise StateDeclarationError(f"{owner}: {form!r} is not a type. {advice}.")
    for part in _parts(form):
        check_type(part, owner)


def resolved(form: object) -> object:
    """Return the type that a ``NewType``, an alias or an ``Annotated`` stands for; others as they are."""
    if isinstance(form, NewType):
        return resolved(form.__supertype__)
    if isinstance(form, TypeAliasType):
        return resolved(form.__value__)
    return resolved(typing.get_args(form)[0]) if typing.get_origin(form) is typing.Annotated else form


def classes_in(form: object) -> set[type]:
    """The classes that values of this type may contain.

    Includes the classes of the fields of dataclasses and named tuples, unless the class customizes pickling.
    """
    found: set[type] = set()
    _collect(form, found)
    return found


def fits(value: object, form: object) -> bool:
    """False only if ``value`` is certainly not of this type. Elements of containers are not checked."""
    if form is None:
        return value is None
    if form is Any:  # a class that isinstance does not accept
        return True
    if form is float:
        return isinstance(value, float | int)  # as for a type checker
    origin = typing.get_origin(form) or form
    if origin is typing.Annotated:
        return fits(value, typing.get_args(form)[0])
    if origin in UNIONS:
        return any(fits(value, part) for part in typing.get_args(form))
    if origin is typing.Literal:
        return value in typing.get_args(form)
    checkable = isinstance(origin, type) and not is_typeddict(origin) and not getattr(origin, "_is_protocol", False)
    return not checkable or isinstance(value, origin)  # type: ignore[arg-type]  # checked above


def _parts(form: object) -> Iterator[object]:
    """The types that a composite type consists of."""
    origin, args = typing.get_origin(form), typing.get_args(form)
    if origin is typing.Literal:
        yield from map(type, args)
        return
    if origin is typing.Annotated:
        yield args[0]
        return
    if isinstance(origin, type) and origin not in UNIONS:
        yield origin
    for arg in args:
        if isinstance(arg, list):  # the parameters of a Callable
            yield from arg
        elif arg is not ...:
            yield arg


def _collect(form: object, found: set[type]) -> None:
    form = resolved(form)
    if typing.get_origin(form) is not None:
        for part in _parts(form):
            _collect(part, found)
    elif isinstance(form, type) and form is not Any and form not in found:
        found.add(dict if is_typeddict(form) else form)
        for part in _field_types(form):
            _collect(part, found)


def _field_types(kind: type) -> list[object]:
    is_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    if not (dataclasses.is_dataclass(kind) or is_tuple or is_typeddict(kind)) or _pickles_itself(kind):
        return []
    try:
        return list(typing.get_type_hints(kind).values())
    except Exception:  # a name that exists only for type checkers
        return []


def _pickles_itself(kind: type) -> bool:
    getstate = kind.__getstate__ if hasattr(kind, "__getstate__") else None
    made = getattr(getstate, "__name__", "") == "_dataclass_getstate"  # of a frozen dataclass with slots
    return not made and any(
        getattr(kind, name) is not getattr(object, name) for name in ("__getstate__", "__reduce__", "__reduce_ex__")
    )
