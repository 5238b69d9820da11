"""Describes the classes of state values, and checks whether values written earlier can be read.

Fields of dataclasses and NamedTuples are read by name, and so are members of enumerations (``dsv2.runtime.serde``).
Only the annotation of a field shows whether its meaning has changed.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, Flag
from typing import Any, TypeAlias

from msgspec import Struct
from typing_extensions import Format, get_annotations

from dsv2.checkpoint.type_shapes import Renamed, TypeShape, fits_into, name_of, shape_of, shown
from dsv2.state.types import classes_in


class FieldDescription(Struct, frozen=True):
    """A field of a class: its type, and whether it has a default."""

    type: TypeShape
    has_default: bool


class ClassWithFields(Struct, frozen=True, tag="fields"):
    """A dataclass or NamedTuple."""

    fields: Mapping[str, FieldDescription]


class Enumeration(Struct, frozen=True, tag="enumeration"):
    """An enumeration: its members, with the numbers of flags, otherwise None."""

    members: Mapping[str, int | None]


ClassDescription: TypeAlias = ClassWithFields | Enumeration
Classes: TypeAlias = Mapping[str, ClassDescription]
"""Classes by name."""


def classes_of(forms: Iterable[object]) -> Classes:
    """Describe the dataclasses, NamedTuples and enumerations that values of the types ``forms`` may contain."""
    kinds = set[type]().union(*map(classes_in, forms))
    return {name_of(kind): described for kind in sorted(kinds, key=name_of) if (described := _class(kind))}


def class_changes(before: Classes, now: Classes, renamed: Renamed) -> list[str]:
    """List why values written as ``before`` cannot be read as ``now``. Classes may be added and removed."""
    changes: list[str] = []
    for kind in sorted(before):
        name = renamed(kind)
        if name not in now:
            continue
        match before[kind], now[name]:
            case ClassWithFields(old), ClassWithFields(new):
                changes.extend(_of_fields(name, old, new, renamed))
            case Enumeration(was), Enumeration(is_now):
                changes.extend(_of_members(name, was, is_now))
            case old_class, new_class:
                changes.append(f"{name} was {_kind(old_class)} and is now {_kind(new_class)}")
    return changes


def _kind(described: ClassDescription) -> str:
    return "a class with fields" if isinstance(described, ClassWithFields) else "an enumeration"


def _of_fields(
    kind: str, old: Mapping[str, FieldDescription], new: Mapping[str, FieldDescription], renamed: Renamed
) -> Iterator[str]:
    for name, field in new.items():
        if name not in old:
            if not field.has_default:
                yield f"{kind} has a new field {name!r} without a default. Give it one"
        elif not fits_into(old[name].type, field.type, renamed):
            yield f"field {name!r} of {kind} was {shown(old[name].type)} and is now {shown(field.type)}"


def _of_members(kind: str, old: Mapping[str, int | None], new: Mapping[str, int | None]) -> Iterator[str]:
    for name, number in old.items():
        if name not in new:
            yield f"{kind} no longer has the member {name!r}"
        elif number != new[name]:
            yield f"the number of the flag {name!r} of {kind} was {number} and is now {new[name]}"


def _class(kind: type) -> ClassDescription | None:
    if issubclass(kind, Enum):
        numbered = issubclass(kind, Flag)
        return Enumeration({name: member.value if numbered else None for name, member in kind.__members__.items()})
    fields = _fields(kind)
    return ClassWithFields(fields) if fields else None


def _fields(kind: type) -> dict[str, FieldDescription]:
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        defaults: Iterable[str] = kind._field_defaults  # type: ignore[attr-defined]
        names: Iterable[str] = kind._fields
    elif dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        names = [field.name for field in fields]
        missing = dataclasses.MISSING
        defaults = [f.name for f in fields if f.default is not missing or f.default_factory is not missing]
    else:
        return {}
    try:
        hints: dict[str, Any] = typing.get_type_hints(kind)
    except Exception:  # a name that only a type checker can resolve
        hints = get_annotations(kind, format=Format.FORWARDREF)
    return {name: FieldDescription(shape_of(hints.get(name, Any)), name in defaults) for name in names}
