"""Event-time interval join: an order is joined with the offers of its product from the 10 seconds before it.

There is an offer and an order every two milliseconds; both count as records. A result has the product, the time of the
order, and the age of the offer.
"""

from __future__ import annotations

from typing import TypeAlias

__all__ = ("APART", "BEFORE", "OFFERS", "ORDERS", "Sided", "Side", "matched", "product_of", "time_of")

BEFORE = 10_000
"""The maximum age of an offer, in ms."""
APART = 2
"""The time between two records of one side, in ms."""
OFFERS, ORDERS = 2_654_435_769, 2_246_822_519
"""Multipliers that distribute the products, differently on both sides."""

Sided: TypeAlias = tuple[int, int]
"""Product and time in ms."""


class Side:
    """Generates the record of an index on one side. Times start after 0, which would be late in Spark."""

    def __init__(self, products: int, multiplier: int) -> None:
        self.products = products
        self.multiplier = multiplier

    def __call__(self, index: int) -> Sided:
        return (index * self.multiplier & 0xFFFF_FFFF) * self.products >> 32, (index + 1) * APART


def product_of(record: Sided) -> int:
    """Return the key."""
    return record[0]


def time_of(record: Sided) -> int:
    """Return the event time."""
    return record[1]


def matched(offer: Sided, order: Sided) -> tuple[int, int, int]:
    """Return the result of a pair."""
    return order[0], order[1], order[1] - offer[1]
