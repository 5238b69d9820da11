"""Delivery of combined values to the function of a receiver."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeAlias

from dsv2.base.type_variables import V
from dsv2.watermark.combination_function import NamedByValue


class WatermarkDelivery(Enum):
    """The moment at which a combined value is delivered."""

    ON_CHANGE = "on change"
    ON_ARRIVAL = "on every arrival"


@dataclass(frozen=True, slots=True)
class DeliverWhen(NamedByValue, Generic[V]):
    """A changed value is delivered when ``predicate(value, delivered)`` holds. ``delivered``: the last one, or None."""

    predicate: Callable[[V, V | None], bool]

    @property
    def value(self) -> str:
        return f"when {getattr(self.predicate, '__qualname__', type(self.predicate).__qualname__)}"


Delivery: TypeAlias = WatermarkDelivery | DeliverWhen[V]
