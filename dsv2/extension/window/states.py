"""Checks of the window states that functions declare, made while the plan is built."""

from __future__ import annotations

from collections.abc import Collection

from dsv2.errors import IllegalRedistributionModeError, StateDeclarationError
from dsv2.extension.window.functions import WindowProcessFunction
from dsv2.extension.window.strategy import SessionWindowStrategy, WindowStrategy
from dsv2.state import RedistributionMode, StateDeclaration


def check_window_states(function: WindowProcessFunction, strategy: WindowStrategy) -> None:
    """Check what ``function`` returns from ``use_window_states``.

    Raises:
        IllegalRedistributionModeError: A state has a mode other than NONE.
        StateDeclarationError: An element is not a declaration, two different declarations have the same name, a state
            has a time to live, or the windows are sessions.
    """
    declarations: object = function.use_window_states()
    if not isinstance(declarations, Collection):
        raise StateDeclarationError(
            f"use_window_states returned {declarations!r}, not a collection of declarations. Return a list or a tuple."
        )
    declared: dict[str, StateDeclaration] = {}
    for declaration in declarations:
        if not isinstance(declaration, StateDeclaration):
            raise StateDeclarationError(
                f"use_window_states returned {declaration!r}, which is not a state declaration. Create one "
                f"with StateDeclarations."
            )
        first = declared.setdefault(declaration.name, declaration)
        if first != declaration:
            raise StateDeclarationError(
                f"Window state {declaration.name!r} has two different declarations:\n  {first!r}\n"
                f"  {declaration!r}\nThe name of a state is unique in a window: rename one of them."
            )
        _check(declaration)
    if declared and isinstance(strategy, SessionWindowStrategy):
        raise StateDeclarationError(
            f"{', '.join(map(str, declared.values()))} cannot be a state of sessions, because sessions merge and their "
            f"states cannot be merged. Store records in the window, aggregate, or use keyed state (uses_states)."
        )


def _check(declaration: StateDeclaration) -> None:
    if declaration.redistribution_mode is not RedistributionMode.NONE:
        raise IllegalRedistributionModeError(
            f"{declaration} cannot be a window state: window states are keyed (mode NONE), but its mode is "
            f"{declaration.redistribution_mode.name}."
        )
    if declaration.time_to_live is not None:
        raise StateDeclarationError(
            f"{declaration} cannot be a window state: window states are removed with their window and have no ttl."
        )
