"""The time to live of the values of a table: the deadline of a row is the time at which its value expires."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dsv2.arrow.encoding import Numbers
from dsv2.arrow.keyed.table import KeyedTable
from dsv2.state import StateTtl, TtlUpdate


class TtlClock(Protocol):
    """The time by which values expire."""

    @property
    def now_ms(self) -> int:
        """The current time, in ms."""

    def updated_at(self) -> int:
        """Return the time of an update, in ms.

        Raises:
            ContractError: There is no time yet.
        """


class Expiry:
    """Sets and compares deadlines.

    Args:
        ttl: The time to live.
        clock: Its time.
    """

    def __init__(self, ttl: StateTtl, clock: TtlClock) -> None:
        self.renews_on_read = ttl.update is TtlUpdate.ON_READ_AND_WRITE
        self._duration = ttl.duration_ms
        self._clock = clock

    @property
    def now_ms(self) -> int:
        """The current time, in ms."""
        return self._clock.now_ms

    def next_deadline(self) -> int:
        """Return when a value expires that is updated now, in ms."""
        return self._clock.updated_at() + self._duration

    def has_passed(self, table: KeyedTable, rows: Numbers, chosen: Numbers) -> Numbers:
        """Return which of the rows have expired. Only those that are ``chosen`` have deadlines."""
        passed = np.zeros(len(rows), np.bool_)
        passed[chosen] = table.deadlines_of(rows[chosen]) <= self._clock.now_ms
        return passed

    def renew(self, table: KeyedTable, rows: Numbers) -> None:
        """Let the values of ``rows`` live from now on."""
        table.set_deadlines(rows, np.full(len(rows), self.next_deadline(), np.int64))

    def expire(self, table: KeyedTable) -> None:
        """Remove expired values."""
        rows = table.take_due(self._clock.now_ms)
        if len(rows):
            table.remove(rows)
