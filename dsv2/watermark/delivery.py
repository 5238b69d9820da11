"""When a combined value is delivered to the function of a receiver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeAlias

from typing_extensions import TypeVar

__all__ = ("DeliverWhen", "Delivery", "WatermarkDelivery")

V = TypeVar("V")


class WatermarkDelivery(Enum):
    """When a combined value is delivered."""

    ON_CHANGE = "on change"
    ON_ARRIVAL = "on every arrival"


@dataclass(frozen=True, slots=True)
class DeliverWhen(Generic[V]):
    """A changed value is delivered when ``predicate(value, delivered)`` holds. ``delivered``: the last one, or None."""

    predicate: Callable[[V, V | None], bool]

    @property
    def name(self) -> str:
        """Its name in the description of a program."""
        return self.value.upper()

    @property
    def value(self) -> str:
        """Its name in plans."""
        return f"when {getattr(self.predicate, '__qualname__', type(self.predicate).__qualname__)}"


Delivery: TypeAlias = WatermarkDelivery | DeliverWhen[V]
