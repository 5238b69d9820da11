"""Describes the classes of state values, and checks whether values written earlier can be read.

Fields of dataclasses and NamedTuples are read by name, and so are members of enumerations (``dsv2.runtime.serde``).
Only the annotation of a field shows whether its meaning has changed.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterable, Iterator
from enum import Enum, Flag
from typing import Any, TypeAlias

from typing_extensions import Format, get_annotations

from dsv2.checkpoint.type_shapes import Renamed, fits_into, name_of, shape_of, shown
from dsv2.state.types import classes_in

Classes: TypeAlias = dict[str, dict[str, Any]]
"""For each class, as JSON values: ``fields`` (the type of each field, and whether it has a default), or ``members`` of
an enumeration (with the numbers of flags, otherwise null)."""


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
        old, new = before[kind], now[name]
        if old.keys() != new.keys():
            changes.append(f"{name} was {_kind(old)} and is now {_kind(new)}")
        elif "fields" in new:
            changes.extend(_of_fields(name, old["fields"], new["fields"], renamed))
        else:
            changes.extend(_of_members(name, old["members"], new["members"]))
    return changes


def _kind(described: dict[str, Any]) -> str:
    return "a class with fields" if "fields" in described else "an enumeration"


def _of_fields(kind: str, old: dict[str, Any], new: dict[str, Any], renamed: Renamed) -> Iterator[str]:
    for name, field in new.items():
        if name not in old:
            if not field["has_default"]:
                yield f"{kind} has a new field {name!r} without a default. Give it one"
        elif not fits_into(old[name]["type"], field["type"], renamed):
            yield f"field {name!r} of {kind} was {shown(old[name]['type'])} and is now {shown(field['type'])}"


def _of_members(kind: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name, number in old.items():
        if name not in new:
            yield f"{kind} no longer has the member {name!r}"
        elif number != new[name]:
            yield f"the number of the flag {name!r} of {kind} was {number} and is now {new[name]}"


def _class(kind: type) -> dict[str, Any]:
    if issubclass(kind, Flag):
        return {"members": {name: member.value for name, member in kind.__members__.items()}}
    if issubclass(kind, Enum):
        return {"members": dict.fromkeys(kind.__members__)}
    fields = _fields(kind)
    return {"fields": fields} if fields else {}


def _fields(kind: type) -> dict[str, dict[str, Any]]:
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
    return {name: {"type": shape_of(hints.get(name, Any)), "has_default": name in defaults} for name in names}
