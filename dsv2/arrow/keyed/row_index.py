"""Finds the rows of keys by their hashes, for many keys at once.

A hash table with open addressing in numpy arrays. Each step looks at one slot for every key that is not found yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from dsv2.arrow.encoding import Numbers

__all__ = ("RowIndex",)

_Equal: TypeAlias = Callable[[Numbers, Numbers], Numbers]
"""Compares stored keys at ``rows`` with wanted keys at ``places``. Returns a boolean for each pair."""

_FEWEST_BITS = 10
_MULTIPLIER = np.uint32(0x9E3779B1)


class RowIndex:
    """Maps the hashes of distinct keys to rows. Rows are numbered in the order in which they are added."""

    __slots__ = ("_bits", "_hashes", "_slots", "count")

    def __init__(self) -> None:
        self.count = 0
        self._hashes = np.empty(0, np.uint32)
        self._clear(_FEWEST_BITS)

    @property
    def hashes(self) -> Numbers:
        """The hash of each row."""
        return self._hashes[: self.count]

    def find(self, hashes: Numbers, equal: _Equal) -> Numbers:
        """Return the row of each wanted key, -1 if it has none."""
        rows = np.full(len(hashes), -1, np.int64)
        if not self.count:
            return rows
        wanted, slots = np.arange(len(hashes)), self._first_slots(hashes)
        last = len(self._slots) - 1
        while len(wanted):
            found = self._slots[slots]
            taken = found >= 0
            wanted, slots, found = wanted[taken], slots[taken], found[taken]
            same = np.flatnonzero(self._hashes[found] == hashes[wanted])
            same = same[equal(found[same], wanted[same])]
            rows[wanted[same]] = found[same]
            others = np.ones(len(wanted), np.bool_)
            others[same] = False
            wanted, slots = wanted[others], slots[others] + 1 & last
        return rows

    def add(self, hashes: Numbers) -> Numbers:
        """Add keys that are not in the index, and return their rows."""
        before, self.count = self.count, self.count + len(hashes)
        if self.count > len(self._hashes):
            self._hashes = np.resize(self._hashes, max(self.count, 2 * before))
        self._hashes[before : self.count] = hashes
        rows = np.arange(before, self.count)
        if 2 * self.count > len(self._slots):
            self._clear((2 * self.count - 1).bit_length())
            self._insert(np.arange(self.count))
        else:
            self._insert(rows)
        return rows

    def _insert(self, rows: Numbers) -> None:
        slots, last = self._first_slots(self._hashes[rows]), len(self._slots) - 1
        while len(rows):
            free = self._slots[slots] < 0
            self._slots[slots[free]] = rows[free]
            others = self._slots[slots] != rows
            rows, slots = rows[others], slots[others] + 1 & last

    def _clear(self, bits: int) -> None:
        self._bits = bits
        self._slots = np.full(1 << bits, -1, np.int32)

    def _first_slots(self, hashes: Numbers) -> Numbers:
        # The hashes of a subtask are similar modulo the number of key groups, so use the upper bits of a product.
        slots: Numbers = (hashes * _MULTIPLIER >> np.uint32(32 - self._bits)).astype(np.int64)
        return slots
