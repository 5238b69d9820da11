"""The orders of the examples about sales."""

from __future__ import annotations

import random
from typing import NamedTuple

__all__ = ("HOUR", "Order", "some_orders")

HOUR = 60 * 60 * 1000  # milliseconds
START = 1_704_067_200_000  # 2024-01-01 00:00 UTC
PRODUCTS = ("kettle", "lamp", "mug", "spoon")


class Order(NamedTuple):
    """An order of ``quantity`` pieces of ``product`` at ``time`` (ms since the epoch)."""

    product: str
    time: int
    quantity: int


def some_orders(count: int = 1000, hours: int = 8, seed: int = 1) -> list[Order]:
    """Generate ``count`` orders over ``hours`` hours, in the order of time."""
    choice = random.Random(seed)
    times = sorted(START + choice.randrange(hours * HOUR) for _ in range(count))
    return [Order(choice.choice(PRODUCTS), time, choice.randint(1, 5)) for time in times]
