"""The channels that hold a combined watermark back: if the first one advances, the value or the first one changes.

These functions follow the rules of the combiners. They work on what a combiner knows, and on what is reported of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final

from dsv2.watermark.event_time import LONG_MIN, PROCESSING_TIME

_ORDERED: Final = ("long", "bool", "float", "str")


def holders_of_event_time(
    times: Mapping[int, int], active: Collection[int], idle: Collection[int], reached: int | None
) -> list[int]:
    """Return the channels (or inputs) that hold event time back, the first one first.

    Args:
        times: The event time in ms of those that have one. ``PROCESSING_TIME``: it follows the wall clock.
        active: Those that are neither idle nor have ended.
        idle: Those that are idle.
        reached: The combined event time, in ms. None: there is none yet.
    """

    def time_of(channel: int) -> int:
        return times.get(channel, LONG_MIN)

    counted = [channel for channel in active if reached is None or time_of(channel) >= reached]
    if not counted:  # all have to catch up, and one is enough
        return sorted(active, key=time_of, reverse=True)
    least = min(map(time_of, counted))
    if least == PROCESSING_TIME:  # the wall clock applies when the idle ones have switched to it as well
        return [channel for channel in idle if time_of(channel) != PROCESSING_TIME]
    return sorted(counted, key=time_of)


class Order(Enum):
    """The channels that hold a combined value back: those with the least values, with the greatest, or any of them."""

    LEAST = "least"
    GREATEST = "greatest"
    ANY = "any"


_ORDERS: Final = {
    "min": Order.LEAST,
    "and": Order.LEAST,
    "quantile": Order.LEAST,
    "at_least": Order.LEAST,
    "max": Order.GREATEST,
    "or": Order.GREATEST,
}


def order_of(value_type: str, combination: str) -> Order:
    """Return the order for the names that plans show of a type of values and of a combination function."""
    if value_type not in _ORDERED:
        return Order.ANY
    return _ORDERS.get(combination.partition("(")[0], Order.ANY)


def holders_of_value(
    values: Mapping[int, Any], active: Collection[int], *, order: Order, waits_for_all: bool
) -> list[int]:
    """Return the channels that hold another watermark back, the first one first.

    Args:
        values: The values of the channels that have one. For an aligned watermark, those of the current round.
        active: The channels that are neither idle nor have ended.
        order: The order of its values. With ``ANY``, a new value of any channel may change the result.
        waits_for_all: Whether nothing is delivered until every active channel has a value.
    """
    missing = [channel for channel in active if channel not in values]
    present = [channel for channel in active if channel in values]
    if not present or (waits_for_all and missing):
        return missing
    if order is Order.ANY:
        return [*missing, *present]
    return sorted(present, key=lambda channel: values[channel], reverse=order is Order.GREATEST)
