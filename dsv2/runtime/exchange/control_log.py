"""The control elements of an edge, which all of its channels carry."""

from __future__ import annotations

from typing import TypeAlias

__all__ = ("Control", "ControlLog")

Control: TypeAlias = tuple[int, int, str, int | bool]
"""(position: the number of records before it, kind, watermark identifier, watermark value or idle flag)"""


class ControlLog:
    """The control elements that an edge has sent since its channels were last flushed.

    A channel without buffered records only remembers how much of the log it has sent. So most control elements are
    stored once for all channels, and channels that send the same ones share a list.
    """

    __slots__ = ("_controls", "_shared")

    def __init__(self) -> None:
        self._controls: list[Control] = []
        self._shared: dict[int, list[Control]] = {}

    def __len__(self) -> int:
        return len(self._controls)

    def add(self, kind: int, identifier: str, value: int | bool) -> None:
        """Add an element."""
        self._controls.append((0, kind, identifier, value))
        self._shared.clear()

    def since(self, begin: int) -> list[Control]:
        """Return the elements from number ``begin`` on, all at position 0. The list must not be changed."""
        shared = self._shared.get(begin)
        if shared is None:
            shared = self._shared[begin] = self._controls[begin:]
        return shared

    def clear(self) -> None:
        """Remove all elements, after every channel has sent them."""
        self._controls.clear()
        self._shared.clear()
