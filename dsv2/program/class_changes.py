"""Describes the classes of state values, and checks whether values written earlier can be read.

Values are read field by field, by name (``dsv2.runtime.serde``). Only the annotation of a field shows whether its
meaning has changed.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable
from typing import Any, TypeAlias

from typing_extensions import Format, get_annotations

from dsv2.state.types import classes_in

__all__ = ("ClassFields", "class_changes", "classes_of")

ClassFields: TypeAlias = dict[str, dict[str, dict[str, Any]]]
"""For each class and field, as JSON values: the types that the field may have, and whether it has a default."""

_ANYTHING = {"typing.Any", "builtins.object"}
_NARROWER = {"builtins.float": "builtins.int", "builtins.complex": "builtins.float"}  # as in type checkers


def classes_of(forms: Iterable[object]) -> ClassFields:
    """Describe the dataclasses and NamedTuples that values of the types ``forms`` may contain."""
    kinds = set[type]().union(*map(classes_in, forms))
    return {_name(kind): fields for kind in sorted(kinds, key=_name) if (fields := _fields(kind))}


def class_changes(before: ClassFields, now: ClassFields) -> list[str]:
    """List why values written as ``before`` cannot be read as ``now``. Classes may be added and removed."""
    changes = []
    for kind in sorted(before.keys() & now.keys()):
        for name, field in now[kind].items():
            old = before[kind].get(name)
            if old is None and not field["has_default"]:
                changes.append(f"{kind} has a new field {name!r} without a default. Give it one")
            elif old is not None and not _widens(old["types"], field["types"]):
                was, is_now = (" | ".join(types_).replace("builtins.", "") for types_ in (old["types"], field["types"]))
                changes.append(f"field {name!r} of {kind} was {was} and is now {is_now}")
    return changes


def _widens(old: list[str], new: list[str]) -> bool:
    accepted = {*new, *(_NARROWER[form] for form in new if form in _NARROWER)}
    return bool(_ANYTHING & {*old, *new}) or set(old) <= accepted


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
    return {name: {"types": _types(hints.get(name, Any)), "has_default": name in defaults} for name in names}


def _types(form: object) -> list[str]:
    if typing.get_origin(form) in (typing.Union, types.UnionType):
        return sorted(name for part in typing.get_args(form) for name in _types(part))
    return [_name(form)]


def _name(form: object) -> str:
    if isinstance(form, type) and typing.get_origin(form) is None:
        return f"{form.__module__}.{form.__qualname__}"
    return str(form)
