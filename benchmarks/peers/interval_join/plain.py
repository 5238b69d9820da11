"""A plain loop with a dict of recent offers. Both sides are in order, so orders need not be kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from benchmarks.jobs.interval_join import BEFORE, OFFERS, ORDERS, Side, Sided, matched, product_of, time_of
from benchmarks.peers.loop import timed
from benchmarks.peers.protocol import Outcome, Task

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the loop. Offers and orders alternate."""
    make_offer, make_order = Side(task.keys, OFFERS), Side(task.keys, ORDERS)
    waiting: dict[int, deque[Sided]] = {}
    results = checksum = 0

    def collect(result: tuple[int, int, int]) -> None:
        nonlocal results, checksum
        results += 1
        checksum += result[2]

    def pair(index: int) -> tuple[Sided, Sided]:
        return make_offer(index), make_order(index)

    def run(pairs: Iterable[tuple[Sided, Sided]]) -> None:
        for offer, order in pairs:
            product, oldest = product_of(offer), time_of(offer) - BEFORE
            offers = waiting.get(product)
            if offers is None:
                offers = waiting[product] = deque()
            while offers and time_of(offers[0]) < oldest:
                offers.popleft()
            offers.append(offer)
            found = waiting.get(product_of(order))
            if found is not None:
                oldest = time_of(order) - BEFORE
                while found and time_of(found[0]) < oldest:
                    found.popleft()
                for other in found:
                    collect(matched(other, order))

    seconds = timed(replace(task, records=task.records // 2), pair, run)
    return Outcome(seconds, results, checksum)
