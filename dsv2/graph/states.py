"""Which states a function may declare where: checked while the plan is built.

Every operator may have REDISTRIBUTABLE state. State of mode NONE belongs to keys, so it takes a keyed stream. IDENTICAL
state is only kept alike by what reaches every subtask, so it takes a broadcast input.
"""

from __future__ import annotations

from collections.abc import Collection

from dsv2.errors import IllegalRedistributionModeError, StateDeclarationError
from dsv2.graph.plan import Operator, OperatorKind
from dsv2.state import ListStateBuilder, MapStateBuilder, RedistributionMode, StateDeclaration

__all__ = ("check_states",)


def check_states(operator: Operator) -> None:
    """Look at what the function of ``operator`` returns from ``uses_states``.

    Raises ``StateDeclarationError`` for what is not a declaration and for names that mean two states, and
    ``IllegalRedistributionModeError`` for modes that the operator does not have.
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
            advice = "Call its build()" if unfinished else "Make one with StateDeclarations"
            raise StateDeclarationError(
                f"{where}: uses_states returned {declaration!r}, which is not a state declaration. {advice}."
            )
        first = declared.setdefault(declaration.name, declaration)
        if first != declaration:
            raise StateDeclarationError(
                f"{where}: state {declaration.name!r} is declared twice and differently:\n  {first!r}\n"
                f"  {declaration!r}\nA name means one state of a function: rename one of them."
            )
        _check_mode(operator, declaration, where)


def _check_mode(operator: Operator, declaration: StateDeclaration, where: str) -> None:
    mode = declaration.redistribution_mode
    if mode is RedistributionMode.NONE and not operator.keyed:
        reason = "state of mode NONE belongs to a key, and this stream is not keyed"
        advice = "Call key_by before, or declare a list with redistribute_by(...)"
    elif mode is RedistributionMode.IDENTICAL and operator.kind is not OperatorKind.TWO_INPUT_BROADCAST:
        reason = "state of mode IDENTICAL is the same in all subtasks, which takes a broadcast input"
        advice = "Connect to a broadcast stream, or declare state of keys"
    else:
        return
    raise IllegalRedistributionModeError(f"{where}: {declaration} cannot be used here: {reason}. {advice}.")
