"""The control elements of an edge, which all of its channels carry."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

WATERMARK: Final = 0
STATUS: Final = 1
END: Final = 2
START: Final = 3  # opens a subtask even if it never receives a record

Control: TypeAlias = tuple[int, int, str, Any]
"""(position: the number of records before it, kind, watermark identifier, watermark value or idle flag)

The value is of the type that the watermark is declared with, and therefore data that a ``Codec`` encodes.
"""


class ControlLog:
    """The control elements that an edge has sent since its channels were last flushed.

    A channel without buffered records only remembers how much of the log it has sent. So most control elements are
    stored once for all channels, and channels that send the same ones share a list.
    """

    __slots__ = ("_controls", "_last_only", "_shared")

    def __init__(self, last_only: frozenset[str] = frozenset()) -> None:
        """``last_only``: See ``Edge``."""
        self._last_only = last_only
        self._controls: list[Control] = []
        self._shared: dict[int, list[Control]] = {}

    def __len__(self) -> int:
        return len(self._controls)

    def add(self, kind: int, identifier: str, value: Any) -> None:
        """Add an element."""
        self._controls.append((0, kind, identifier, value))
        self._shared.clear()

    def since(self, begin: int) -> list[Control]:
        """Return the elements from number ``begin`` on, all at position 0. The list must not be changed."""
        shared = self._shared.get(begin)
        if shared is None:
            shared = self._shared[begin] = self.without_superseded(self._controls[begin:])
        return shared

    def without_superseded(self, controls: list[Control]) -> list[Control]:
        """Return ``controls`` of a channel without values that a later one at the same position supersedes."""
        if not self._last_only or len(controls) < 2:
            return controls
        position, later = -1, set[str]()
        kept: list[Control] = []
        for control in reversed(controls):
            if control[0] != position:
                position = control[0]
                later.clear()
            if control[1] == WATERMARK and (identifier := control[2]) in self._last_only:
                if identifier in later:
                    continue
                later.add(identifier)
            kept.append(control)
        kept.reverse()
        return kept

    def clear(self) -> None:
        """Remove all elements, after every channel has sent them."""
        self._controls.clear()
        self._shared.clear()
