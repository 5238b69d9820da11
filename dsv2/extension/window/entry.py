"""What windows keep in the entry of a key, and under which names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, TypeAlias

from dsv2.state import StateDeclaration

__all__ = ("CONTENTS", "COUNT", "EARLY", "ENDS", "STATES", "WindowEntry", "PartitionAccess", "Pane", "Panes")

# Strings are the names of the user's states, and numbers from 0 the runtime's own. All but COUNT map a window to
# something; windows are known by their start.
CONTENTS: Final = -1
"""What it holds. Every window of the key is in here, but for those that end for all keys at once: these have panes."""
ENDS: Final = -2
"""Where it ends: for sessions only, others know."""
EARLY: Final = -3
"""When it fires before its time."""
COUNT: Final = -4
"""Records of the key so far, for count windows."""

STATES: Final = -5
"""Its states, by name."""

WindowEntry: TypeAlias = dict[Any, Any]


class Pane(Protocol):
    """What all keys have in one window."""

    slot: int
    deadline: int
    layout: tuple[int, ...]
    live: dict[Any, Any]

    def take(self, key: Any, default: Any = None) -> Any:
        """The value of a ``key`` that is not in ``live``, moved there; ``default`` if there is none."""

    def take_all(self) -> dict[Any, Any]:
        """``live``, with every value there is."""


class Panes(Protocol):
    """The panes of this subtask, by window."""

    @property
    def get(self) -> Callable[[int], Pane | None]:
        """The pane of a window."""

    def __iter__(self) -> Iterator[Any]:
        """All of them, as they are now."""

    def open(self, slot: int, deadline: int, by_event: bool, layout: tuple[int, ...] = ()) -> Pane:
        """A new one."""

    def hasten(self, pane: Any, deadline: int) -> None:
        """Give one an earlier deadline. (A later one may just be put into it.)"""

    def drop(self, slot: int) -> None:
        """Forget one."""


class PartitionAccess(Protocol):
    """What the runtime's state manager offers to extensions."""

    key: Any
    panes: Panes

    def entry(self) -> WindowEntry:
        """The live entry of the current key, made if there is none."""

    def new_handle(self, declaration: StateDeclaration, home: Callable[[], WindowEntry], /) -> Any:
        """A handle on a state that is kept in what ``home`` returns at each access."""
