"""The sliding windows of the records of a batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dsv2.arrow.encoding import Numbers
from dsv2.extension.window.strategy import SlidingWindowStrategy
from dsv2.spi import last_of
from dsv2.watermark.event_time import LONG_MAX


def late_records(strategy: SlidingWindowStrategy, times: Numbers, event_time: int) -> Numbers:
    """Return the records whose windows, or whose own times in gaps between windows, have passed."""
    last = _last_windows(strategy, times)
    late: Numbers = np.maximum(times, last + strategy.size - 1) <= event_time
    return late


def rows_by_window(
    strategy: SlidingWindowStrategy, times: Numbers, event_time: int
) -> Iterator[tuple[int, Numbers | None]]:
    """Return the start of each window that has not passed, with the places of its records; None: all records."""
    last = _last_windows(strategy, times)
    slots = {slot - start for slot in np.unique(last).tolist() for start in range(0, strategy.size, strategy.slide)}
    for slot in sorted(slots):
        if last_of(slot, strategy.size) <= event_time:
            continue
        chosen = (times >= slot) & (times <= min(slot + strategy.size - 1, LONG_MAX))  # in the order of arrival
        if chosen.all():
            yield slot, None
        elif chosen.any():
            yield slot, np.flatnonzero(chosen)


def _last_windows(strategy: SlidingWindowStrategy, times: Numbers) -> Numbers:
    """The start of the last window of each record."""
    starts: Numbers = times - (times - strategy.offset) % strategy.slide
    return starts
