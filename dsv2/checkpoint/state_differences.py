"""Compares the descriptions of one state in two programs."""

from __future__ import annotations

from collections.abc import Iterator

from dsv2.checkpoint.class_changes import class_changes
from dsv2.checkpoint.program import StateDescription
from dsv2.checkpoint.type_shapes import Renamed, TypeShape, fits_into, shown

_PARTS = ("kind", "mode", "time_to_live")
_MAPS = ("MapState", "BroadcastState")
_OTHER_NAME = "under another name the state begins empty"
_CONVERT = (
    "convert the stored values with a higher version and migrate=..., or, if a class was renamed, register it: "
    "env.register_type(..., formerly=...)"
)
_NO_CONVERTER = "give it migrate=..., which converts the stored values"


def state_differences(
    old: StateDescription, new: StateDescription, renamed: Renamed
) -> Iterator[tuple[str, str | None]]:
    """List why values stored as ``old`` cannot be read as ``new``, and for each what else helps."""
    for part in _PARTS:
        if (had := getattr(old, part)) != (has := getattr(new, part)):
            yield f"its {part.replace('_', ' ')} was {had} and is now {has}", _OTHER_NAME
    was, is_now = old.version, new.version
    if is_now < was:
        yield f"its version was {was} and is now {is_now}", "a version only increases"
    elif is_now > was and not new.has_converter:
        yield f"its version was {was} and is now {is_now}, but it has no converter", _NO_CONVERTER
    old_types, new_types = _compared(old, new)
    if len(old_types) != len(new_types) or not all(
        fits_into(*types, renamed) for types in zip(old_types, new_types, strict=True)
    ):
        yield f"its type was {_shown(old_types)} and is now {_shown(new_types)}", _CONVERT
    for change in class_changes(old.classes, new.classes, renamed):
        yield change, None


def _compared(old: StateDescription, new: StateDescription) -> tuple[tuple[TypeShape, ...], tuple[TypeShape, ...]]:
    """The types that must fit. A converter may change the type of values, but not of the keys of a map."""
    if old.version == new.version:
        return old.types, new.types
    is_map = old.kind in _MAPS and new.kind in _MAPS
    return (old.types[:1], new.types[:1]) if is_map else ((), ())


def _shown(types: tuple[TypeShape, ...]) -> str:
    return ", ".join(map(shown, types))
