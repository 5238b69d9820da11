"""Timers of many keys, as columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from dsv2.arrow.encoding import Numbers, in_one_piece
from dsv2.arrow.keyed.keys import KeyArray, KeyFinder, Keys
from dsv2.arrow.keyed.table import KeyedTable
from dsv2.errors import ContractError
from dsv2.spi import check_timestamp

TIMES = pa.list_(pa.int64())
"""The type of the only column of the table: the times of a key's timers, sorted."""
TIMESTAMP = "timestamp"


class ArrowTimers:
    """The timers of a function on tables, in event time or in processing time.

    There is at most one timer for each key and time. Timers are part of the checkpoint.
    """

    def __init__(self, table: KeyedTable, finder: KeyFinder, current_time: Callable[[], int]) -> None:
        self._table = table
        self._finder = finder
        self._current_time = current_time

    @property
    def count(self) -> int:
        """The number of keys with timers."""
        return self._table.count

    def register(self, keys: KeyArray, timestamps: Any) -> None:
        """Register timers.

        Args:
            keys: The keys, as for ``ArrowKeyedState``.
            timestamps: The time of each in ms, as an array; or one time for all of them.

        Raises:
            ContractError: A time is null or not a whole number, or the columns differ in length.
        """
        found = self._finder.find(keys)
        times = _times(timestamps, len(found.places))
        if not len(times):
            return
        rows, new = self._table.make(found.keys)
        self._table.put(0, rows[new], pa.array([[]] * int(np.count_nonzero(new)), TIMES))
        places, before = self._pairs(rows)
        self._store(rows, np.concatenate([places, found.places]), np.concatenate([before, times]))

    def delete(self, keys: KeyArray, timestamps: Any) -> None:
        """Delete timers, if they exist. The arguments are those of ``register``."""
        found = self._finder.find(keys)
        times = _times(timestamps, len(found.places))
        rows = self._table.find(found.keys)
        numbers = np.cumsum(rows >= 0) - 1  # by place, without keys that have no timers
        wanted = rows[found.places] >= 0
        rows = rows[rows >= 0]
        if not len(rows):
            return
        self._table.touch(rows)
        places, before = self._pairs(rows)
        deleted = set(zip(numbers[found.places[wanted]].tolist(), times[wanted].tolist(), strict=True))
        kept = np.array([pair not in deleted for pair in zip(places.tolist(), before.tolist(), strict=True)], np.bool_)
        self._store(rows, places[kept], before[kept])

    def put_distinct(self, keys: Keys, times: Numbers) -> None:
        """Replace the timers of distinct keys that were found by one for each. For the operators of dsv2."""
        rows, _ = self._table.make(keys)
        self._store(rows, np.arange(len(rows)), times)

    def current_time(self) -> int:
        """Return the current time in ms."""
        return self._current_time()

    def next_time(self) -> int | None:
        """Return the time of the next timer, or an earlier time if one was deleted; None if there is none."""
        return self._table.next_deadline()

    def take_due(self, time: int) -> pa.Table | None:
        """Remove the timers up to ``time`` and return them, ordered by time; None if there are none.

        The columns are those of the key, and ``timestamp``.
        """
        rows = self._table.take_due(time)
        if not len(rows):
            return None
        places, times = self._pairs(rows)
        is_due = times <= time
        self._store(rows, places[~is_due], times[~is_due])
        places, times = places[is_due], times[is_due]
        order = np.argsort(times, kind="stable")
        keys = self._table.keys_of(rows).take(places[order])
        names, columns = self._finder.columns_of(keys, [TIMESTAMP])
        return pa.table([*columns, pa.array(times[order])], [*names, TIMESTAMP])

    def _pairs(self, rows: Numbers) -> tuple[Numbers, Numbers]:
        """The timers of ``rows``: the place of the row, and the time."""
        lists = self._table.get(0, rows)
        return np.repeat(np.arange(len(rows)), lists.value_lengths().to_numpy()), lists.flatten().to_numpy()

    def _store(self, rows: Numbers, places: Numbers, times: Numbers) -> None:
        """Set the timers of ``rows``, each once. Rows without timers are removed."""
        order = np.lexsort((times, places))
        places, times = places[order], times[order]
        same = (places[1:] == places[:-1]) & (times[1:] == times[:-1])
        distinct = np.concatenate([np.ones(min(len(times), 1), np.bool_), ~same])
        places, times = places[distinct], times[distinct]
        firsts = np.searchsorted(places, np.arange(len(rows) + 1))
        some = np.diff(firsts) > 0
        self._table.remove(rows[~some])
        offsets = np.append(firsts[:-1][some], len(times)).astype(np.int32)
        self._table.put(0, rows[some], pa.ListArray.from_arrays(pa.array(offsets), pa.array(times)))
        self._table.set_deadlines(rows[some], times[firsts[:-1][some]])


def _times(timestamps: Any, count: int) -> Numbers:
    if isinstance(timestamps, int):
        check_timestamp(timestamps)
        return np.full(count, timestamps, np.int64)
    column = in_one_piece(timestamps) if isinstance(timestamps, pa.ChunkedArray) else pa.array(timestamps)
    if column.null_count or not pa.types.is_integer(column.type) or len(column) != count:
        raise ContractError("The times of timers are whole numbers in ms, one for each key.")
    times: Numbers = column.cast(pa.int64()).to_numpy()
    return times
