"""Finds classes of stored values that a program no longer knows, so that it could not read them."""

from __future__ import annotations

from collections.abc import Sequence

from dsv2.program.description import Description
from dsv2.program.difference import Difference
from dsv2.program.operator_differences import at
from dsv2.runtime.serde.type_registry import TypeRegistry

__all__ = ("unknown_classes",)


def unknown_classes(programs: Sequence[Description], now: Description, types: TypeRegistry) -> list[Difference]:
    """Return a difference for each class of a state that cannot be read.

    Args:
        programs: The programs that wrote the state.
        now: The program that is to continue.
        types: The classes of that program.
    """
    found: dict[Difference, None] = {}
    for program in programs:
        for uid, operator in now["operators"].items():
            before = program["operators"].get(uid, {}).get("states", {})
            for name in (name for name in operator["states"] if name in before):
                for kind in (kind for kind in before[name]["classes"] if not types.knows(kind)):
                    found[_difference(uid, operator["defined_at"], name, kind)] = None
    return list(found)


def _difference(uid: str, location: str, state: str, kind: str) -> Difference:
    return Difference(
        uid,
        f"{at(uid, location)}: state {state!r}: it may hold values of {kind}, a class that the program does not use",
        carried=False,
        advice=(
            f"call env.register_type with this class, or, if it was renamed or moved, register its new class with "
            f"formerly={kind!r}"
        ),
    )
