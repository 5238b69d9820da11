"""Interval join in event time: an order meets the offers of its product from the 10 seconds before it.

There is an offer and an order every two milliseconds; both count as records. A result is the product, the time of the
order, and how much older the offer is.
"""

from __future__ import annotations

from typing import TypeAlias

__all__ = ("APART", "BEFORE", "OFFERS", "ORDERS", "Sided", "Side", "matched", "product_of", "time_of")

BEFORE = 10_000
"""How long before an order an offer may be, in ms."""
APART = 2
"""Ms between two records of one side."""
OFFERS, ORDERS = 2_654_435_769, 2_246_822_519
"""Multipliers that scatter the products, differently on both sides."""

Sided: TypeAlias = tuple[int, int]
"""Product, time in ms."""


class Side:
    """Record number ``index`` of one side. None has the time 0, with which Spark begins: it would be late."""

    def __init__(self, products: int, multiplier: int) -> None:
        self.products = products
        self.multiplier = multiplier

    def __call__(self, index: int) -> Sided:
        return (index * self.multiplier & 0xFFFF_FFFF) * self.products >> 32, (index + 1) * APART


def product_of(record: Sided) -> int:
    """The key."""
    return record[0]


def time_of(record: Sided) -> int:
    """Event time."""
    return record[1]


def matched(offer: Sided, order: Sided) -> tuple[int, int, int]:
    """What a pair gives."""
    return order[0], order[1], order[1] - offer[1]
