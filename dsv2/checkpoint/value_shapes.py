"""Checks values against the description of a type, for state that no function of the job has written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsv2.checkpoint.class_changes import Classes, ClassWithFields
from dsv2.checkpoint.type_shapes import UNION, TypeShape, name_of, shown

_ANY_NUMBER = (TypeShape("..."),)
_LISTS = ("builtins.list", "builtins.set", "builtins.frozenset")
_NUMBERS = {"builtins.float": (int, float), "builtins.complex": (int, float, complex)}  # as for a type checker
_BUILT_IN = {
    *(f"builtins.{name}" for name in ("bool", "int", "str", "bytes", "list", "set", "frozenset", "dict", "tuple")),
    *("builtins.NoneType", "builtins.float", "builtins.complex", "decimal.Decimal", "uuid.UUID"),
    *(f"datetime.{name}" for name in ("date", "datetime", "time", "timedelta")),
}


def misfit(value: object, shape: TypeShape, classes: Classes) -> str | None:
    """Say why ``value`` is certainly not of the type ``shape``; None if it may be.

    Args:
        value: The value.
        shape: The type (``shape_of``).
        classes: The classes that the type mentions (``classes_of``).
    """
    if shape.name == UNION:
        if all(misfit(value, part, classes) for part in shape.args):
            return _reason(value, shape)
        return None
    if not _is_instance(value, shape.name, classes) or _has_another_length(value, shape):
        return _reason(value, shape)
    return next(filter(None, (misfit(part, of, classes) for part, of in _parts(value, shape, classes))), None)


def _reason(value: object, shape: TypeShape) -> str:
    text = repr(value)
    return f"{text if len(text) <= 80 else text[:77] + '...'} is not of type {shown(shape)}"


def _is_instance(value: object, name: str, classes: Classes) -> bool:
    if name in _NUMBERS:
        return isinstance(value, _NUMBERS[name]) and not isinstance(value, bool)
    bases = {name_of(base) for base in type(value).__mro__[:-1]}
    if name in _BUILT_IN or name in classes:
        return name in bases
    kind, _, literal = name.partition(" ")
    if literal and kind in _BUILT_IN:
        return name_of(type(value)) == kind and repr(value) == literal
    return True  # a protocol, an abstract class, a typed dict: only the program knows


def _has_another_length(value: Any, shape: TypeShape) -> bool:
    is_fixed = shape.name == "builtins.tuple" and shape.args and shape.args[1:] != _ANY_NUMBER
    return bool(is_fixed) and len(shape.args) != len(value)


def _parts(value: Any, shape: TypeShape, classes: Classes) -> Iterator[tuple[object, TypeShape]]:
    """The parts of ``value`` with their types, as far as these are known."""
    name, arguments = shape.name, shape.args
    if name in _LISTS and len(arguments) == 1:
        yield from ((element, arguments[0]) for element in value)
    elif name == "builtins.dict" and len(arguments) == 2:
        for key, item in value.items():
            yield key, arguments[0]
            yield item, arguments[1]
    elif name == "builtins.tuple" and arguments[1:] == _ANY_NUMBER:
        yield from ((element, arguments[0]) for element in value)
    elif name == "builtins.tuple" and arguments:
        yield from zip(value, arguments, strict=True)
    elif isinstance(kind := classes.get(name), ClassWithFields):
        yield from ((getattr(value, field, None), of.type) for field, of in kind.fields.items())
