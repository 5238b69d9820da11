"""References to runtime objects, which a function may store in a field although they are not data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar


class Reference(ABC):
    """Serialized as its kind and name. After a restart, the runtime replaces it by its own object of that name."""

    __slots__ = ()

    reference_kind: ClassVar[str]

    @property
    @abstractmethod
    def reference_name(self) -> str:
        """The name by which the runtime finds the object."""
