"""Which states windows may have: checked while the plan is built."""

from __future__ import annotations

from collections.abc import Collection

from dsv2.errors import IllegalRedistributionModeError, StateDeclarationError
from dsv2.extension.window.functions import WindowProcessFunction
from dsv2.extension.window.strategy import SessionWindowStrategy, WindowStrategy
from dsv2.state import RedistributionMode, StateDeclaration

__all__ = ("check_window_states",)


def check_window_states(function: WindowProcessFunction, strategy: WindowStrategy) -> None:
    """Look at what ``function`` returns from ``use_window_states``.

    Raises ``IllegalRedistributionModeError`` for modes other than NONE, and ``StateDeclarationError`` for what is not a
    declaration, names that mean two states, a time to live, and any state in windows that merge.
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
                f"use_window_states returned {declaration!r}, which is not a state declaration. Make one with "
                f"StateDeclarations."
            )
        first = declared.setdefault(declaration.name, declaration)
        if first != declaration:
            raise StateDeclarationError(
                f"Window state {declaration.name!r} is declared twice and differently:\n  {first!r}\n"
                f"  {declaration!r}\nA name means one state of a window: rename one of them."
            )
        _check(declaration)
    if declared and isinstance(strategy, SessionWindowStrategy):
        raise StateDeclarationError(
            f"{', '.join(map(str, declared.values()))} cannot be a state of sessions: they merge, and nobody knows how "
            f"to merge their states. Keep records in them, aggregate, or keep state of the key (uses_states)."
        )


def _check(declaration: StateDeclaration) -> None:
    if declaration.redistribution_mode is not RedistributionMode.NONE:
        raise IllegalRedistributionModeError(
            f"{declaration} cannot be a state of windows: these belong to keys, and its mode is "
            f"{declaration.redistribution_mode.name}."
        )
    if declaration.time_to_live is not None:
        raise StateDeclarationError(
            f"{declaration} cannot be a state of windows: these live as long as their window, and have no time to live."
        )
