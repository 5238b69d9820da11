"""Values within a blob that are decoded later than the rest, because only their owner knows how.

They are encoded as part of the tree around them, not as bytes of their own: copies of a large value would multiply the
memory that it takes.
"""

from __future__ import annotations

from typing import Any


class Nested:
    """A value to be encoded."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Undecoded:
    """A ``Nested`` value after the tree around it was decoded.

    Attributes:
        node: Its node, as MessagePack has decoded it.
        limit: The maximum number of objects in a graph.
    """

    __slots__ = ("limit", "node")

    def __init__(self, node: Any, limit: int) -> None:
        self.node = node
        self.limit = limit
