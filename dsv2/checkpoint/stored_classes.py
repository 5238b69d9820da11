"""Compares classes of stored values with those of a program whose states no longer declare them.

Differences between states compare the classes that both programs declare. Stored values may have others: those that a
converter gets, and those in a state whose type is now ``object``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from dsv2.checkpoint.class_changes import Classes, class_changes, classes_of
from dsv2.checkpoint.difference import Difference
from dsv2.checkpoint.operator_differences import at
from dsv2.checkpoint.program import OperatorDescription, ProgramDescription
from dsv2.runtime.serde.type_registry import TypeRegistry, current_name


def unreadable_classes(
    programs: Sequence[ProgramDescription], now: ProgramDescription, types: TypeRegistry
) -> list[Difference]:
    """Return a difference for each class of a state that the program does not know, or cannot read.

    Args:
        programs: The programs that wrote the state.
        now: The program that is to continue.
        types: The classes of that program.
    """
    found: dict[Difference, None] = {}
    for program in programs:
        for uid in (uid for uid in now.operators if uid in program.operators):
            operator = now.operators[uid]
            before, after = _classes_by_part(program.operators[uid]), _classes_by_part(operator)
            for name in (name for name in after if name in before):
                where = f"{at(uid, operator.defined_at)}: {name}"
                for text, advice in _changes(before[name], after[name], now.former_names, types):
                    found[Difference(uid, f"{where}: {text}", carried=False, advice=advice)] = None
    return list(found)


def _classes_by_part(operator: OperatorDescription) -> dict[str, Classes]:
    """The classes of stored values, by the part of an operator that has them."""
    states = {f"state {name!r}": state.classes for name, state in operator.states.items()}
    return states if operator.aggregates is None else {**states, "aggregates": operator.aggregates.classes}


def _changes(
    old: Classes, new: Classes, former_names: Mapping[str, str], types: TypeRegistry
) -> Iterator[tuple[str, str | None]]:
    renamed = partial(current_name, former_names=former_names)
    for kind, described in old.items():
        if renamed(kind) in new:
            continue
        if (current := types.class_named(kind)) is None:
            advice = (
                f"call env.register_type with this class, or, if it was renamed or moved, register its new class with "
                f"formerly={kind!r}"
            )
            yield f"it may hold values of {kind}, a class that the program does not use", advice
        else:
            for change in class_changes({kind: described}, classes_of([current]), renamed):
                yield change, None
