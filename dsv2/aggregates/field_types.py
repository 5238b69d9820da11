"""The types of the fields of records, of their keys, and of what is aggregated."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from datetime import date, time
from types import UnionType
from typing import Any, NewType

from dsv2.aggregates.result_field import Aggregate, Key, Part
from dsv2.errors import PlanError

_WIDER: dict[Any, tuple[Any, ...]] = {float: (int,), complex: (int, float)}
_NOT_ADDED = (str, bytes, bytearray, list, tuple, date, time)
"""Classes that have ``+``, but no sums."""


def field_types(kind: object) -> dict[str, Any] | None:
    """Return the types of the fields of a NamedTuple class or dataclass; None if it is neither."""
    if not isinstance(kind, type):
        return None
    if dataclasses.is_dataclass(kind):
        names = [field.name for field in dataclasses.fields(kind) if field.init]
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = list(kind._fields)
    else:
        return None
    try:
        hints = typing.get_type_hints(kind)
    except NameError:
        hints = {}
    return {name: hints.get(name, object) for name in names}


def held_type(part: Part, values: Mapping[str, Any], key: Any) -> Any:
    """Return the type of what a field of the result holds; ``object`` if it is not known.

    Args:
        part: What it holds.
        values: The types of the fields of the records, as far as they are known.
        key: The type of the keys, or ``object``.

    Raises:
        PlanError: The field cannot be aggregated, or the key has no such part.
    """
    if isinstance(part, Key):
        return _part_of_key(part, key)
    if isinstance(part, Aggregate):
        for name in part.inputs if part.needed else ():
            _check_number(part, name, values.get(name, object))
        return part.result_type(values)
    return int


def fits(given: Any, wanted: Any) -> bool:
    """Return whether a field accepts values of another type, as for type checkers; None and unknown types fit."""
    return all(any(_fits_one(one, other) for other in _parts(wanted)) for one in _parts(given))


def shown(hint: Any) -> str:
    """Return a type as in an annotation."""
    return hint.__qualname__ if type(hint) is type else str(hint)


def _parts(hint: Any) -> list[Any]:
    """The parts of a union, or the type."""
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return [part for one in typing.get_args(hint) if one is not type(None) for part in _parts(one)]
    return [hint]


def _fits_one(given: Any, wanted: Any) -> bool:
    one, other = typing.get_origin(given) or given, typing.get_origin(wanted) or wanted
    if not isinstance(one, type) or not isinstance(other, type) or {one, other} & {object, Any}:
        return True
    if other in _WIDER and issubclass(one, _WIDER[other]):
        return True
    try:
        if not issubclass(one, other):
            return False
    except TypeError:  # a protocol with attributes
        return True
    inner, outer = typing.get_args(given), typing.get_args(wanted)
    return one is not other or len(inner) != len(outer) or all(map(fits, inner, outer))


def _check_number(part: Aggregate, name: str, hint: Any) -> None:
    for one in _parts(hint):
        kind = typing.get_origin(one) or one
        if not isinstance(kind, type) or kind in (object, Any):
            continue
        if issubclass(kind, _NOT_ADDED) or not hasattr(kind, part.needed):
            raise PlanError(f"{part} is not possible: {name!r} is {shown(hint)}, which is not a number.")


def _part_of_key(part: Key, key: Any) -> Any:
    kind = typing.get_origin(key) or key
    if part.index is None or not isinstance(kind, type) or kind in (object, Any):
        return key if part.index is None else object
    parts: tuple[Any, ...] = (key,)
    if issubclass(kind, tuple):
        parts = tuple((field_types(kind) or {}).values()) or typing.get_args(key)
        if not parts or Ellipsis in parts:
            return object
    if not -len(parts) <= part.index < len(parts):
        raise PlanError(f"{part} is not possible: the key is {shown(key)} and has {_count(len(parts))}.")
    return parts[part.index]


def _count(parts: int) -> str:
    return "one part" if parts == 1 else f"{parts} parts"
