"""Checks of the states that functions declare, made while the plan is built.

Any operator may have REDISTRIBUTABLE state. State of mode NONE belongs to a key, so it requires a keyed stream.
IDENTICAL state is updated by records that reach every subtask, so it requires a broadcast input.
"""

from __future__ import annotations

from collections.abc import Collection

from dsv2.errors import IllegalRedistributionModeError, StateDeclarationError
from dsv2.graph.plan import Operator, OperatorKind
from dsv2.spi import AsyncFunction
from dsv2.state import ListStateBuilder, MapStateBuilder, RedistributionMode, StateDeclaration


def check_states(operator: Operator) -> None:
    """Check what the function of ``operator`` returns from ``uses_states``.

    Raises:
        StateDeclarationError: An element is not a declaration, or two different declarations have the same name.
        IllegalRedistributionModeError: The operator does not support the mode of a state.
    """
    where = f"{operator} at {operator.location}"
    declarations: object = operator.function.uses_states()
    if not isinstance(declarations, Collection):
        raise StateDeclarationError(
            f"{where}: uses_states returned {declarations!r}, not a collection of declarations. "
            f"Return a list or a tuple."
        )
    declared: dict[str, StateDeclaration] = {}
    for declaration in declarations:
        if not isinstance(declaration, StateDeclaration):
            unfinished = isinstance(declaration, ListStateBuilder | MapStateBuilder)
            advice = "Call its build()" if unfinished else "Create one with StateDeclarations"
            raise StateDeclarationError(
                f"{where}: uses_states returned {declaration!r}, which is not a state declaration. {advice}."
            )
        first = declared.setdefault(declaration.name, declaration)
        if first != declaration:
            raise StateDeclarationError(
                f"{where}: state {declaration.name!r} has two different declarations:\n  {first!r}\n"
                f"  {declaration!r}\nThe name of a state is unique in a function: rename one of them."
            )
        _check_mode(operator, declaration, where)


def _check_mode(operator: Operator, declaration: StateDeclaration, where: str) -> None:
    mode = declaration.redistribution_mode
    if mode is not RedistributionMode.NONE and isinstance(operator.body, AsyncFunction):
        reason = "records in flight would overwrite each other's changes of a state that belongs to the subtask"
        advice = "Declare keyed state, or use a field of the function"
    elif mode is RedistributionMode.NONE and not operator.keyed:
        reason = "state of mode NONE belongs to a key, and this stream is not keyed"
        advice = "Call key_by first, or declare a list with redistribute_by(...)"
    elif mode is RedistributionMode.IDENTICAL and operator.kind is not OperatorKind.TWO_INPUT_BROADCAST:
        reason = "state of mode IDENTICAL is the same in all subtasks, which requires a broadcast input"
        advice = "Connect to a broadcast stream, or declare keyed state"
    else:
        return
    raise IllegalRedistributionModeError(f"{where}: {declaration} cannot be used here: {reason}. {advice}.")
