"""The sliding and cumulating windows of the records of a batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsv2.arrow.encoding import Numbers
from dsv2.extension.window.strategy import CumulatingWindowStrategy, SlidingWindowStrategy
from dsv2.spi import last_of
from dsv2.watermark.event_time import LONG_MAX


def late_records(strategy: SlidingWindowStrategy, times: Numbers, event_time: int) -> Numbers:
    """Return the records whose windows, or whose own times in gaps between windows, have passed."""
    last = _latest_slots(strategy, times)
    late: Numbers = np.maximum(times, last + strategy.size - 1) <= event_time
    return late


def rows_by_window(
    strategy: SlidingWindowStrategy, times: Numbers, event_time: int
) -> Iterator[tuple[int, Numbers | None]]:
    """Return the slot of each window that has not passed, with the places of its records; None: all records."""
    last, span = _latest_slots(strategy, times), _span(strategy)
    slots = {slot - before for slot in np.unique(last).tolist() for before in range(0, span, strategy.slide)}
    for slot in sorted(slots):
        if last_of(slot, strategy.size) <= event_time:
            continue
        # In the order of arrival.
        chosen = (times >= strategy.start_of(slot)) & (times <= min(slot + strategy.size - 1, LONG_MAX))
        if chosen.all():
            yield slot, None
        elif chosen.any():
            yield slot, np.flatnonzero(chosen)


def _latest_slots(strategy: SlidingWindowStrategy, times: Numbers) -> Numbers:
    """The slot of the last window of each record."""
    span = _span(strategy)
    every = span if isinstance(strategy, CumulatingWindowStrategy) else strategy.slide
    slots: Numbers = times - (times - strategy.offset) % every + (span - strategy.size)
    return slots


def _span(strategy: SlidingWindowStrategy) -> int:
    """The time from the slot of the first window of a record to the end of its last one."""
    return strategy.cycle if isinstance(strategy, CumulatingWindowStrategy) else strategy.size
