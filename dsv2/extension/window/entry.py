"""What windows keep in the entry of a key, and under which names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from dsv2.state import StateDeclaration

__all__ = ("CONTENTS", "COUNT", "EARLY", "ENDS", "STATES", "Entry", "KeyInHand")

# Strings are the names of the user's states, and numbers from 0 the runtime's own. All but COUNT map a window to
# something; windows are known by their start.
CONTENTS: Final = -1
"""What it holds; every window of the key is in here."""
ENDS: Final = -2
"""Where it ends: for sessions only, others know."""
EARLY: Final = -3
"""When it fires before its time."""
COUNT: Final = -4
"""Records of the key so far, for count windows."""

STATES: Final = -5
"""Its states, by name."""

Entry: TypeAlias = dict[Any, Any]


class KeyInHand(Protocol):
    """What the runtime's state manager offers to extensions."""

    def entry(self) -> Entry:
        """The live entry of the current key, made if there is none."""

    def new_handle(self, declaration: StateDeclaration, home: Callable[[], Entry], /) -> Any:
        """A handle on a state that is kept in what ``home`` returns at each access."""
