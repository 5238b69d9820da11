"""The events of ``benchmarks.jobs.events`` in columns."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.common.tables import Numbers
from dsv2.arrow import schema_of

__all__ = ("EventRow", "EventTables")

_MULTIPLIER = np.uint64(2_654_435_769)


class EventRow(NamedTuple):
    """An event."""

    user: int
    time: int
    value: int


class EventTables:
    """Generates the events of indices."""

    def __init__(self, users: int) -> None:
        self.users = users

    def __call__(self, index: Numbers) -> pa.Table:
        scattered = index.astype(np.uint64) * _MULTIPLIER & np.uint64(0xFFFF_FFFF)
        users = (scattered * np.uint64(self.users) >> np.uint64(32)).astype(np.int64)
        return pa.table([users, index, index % 100], schema_of(EventRow))
