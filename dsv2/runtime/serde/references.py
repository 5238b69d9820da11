"""Objects of the runtime that a function may keep in a field although they are no data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

__all__ = ("Reference",)


class Reference(ABC):
    """Written as its kind and name; after a restart the runtime puts its own object of that name in its place."""

    __slots__ = ()

    reference_kind: ClassVar[str]

    @property
    @abstractmethod
    def reference_name(self) -> str:
        """What it is found by."""
