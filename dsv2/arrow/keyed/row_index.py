"""Finds the rows of keys by their hashes, for many keys at once.

A hash table with open addressing in numpy arrays. Each step looks at one slot for every key that is not found yet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from dsv2.arrow.encoding import Numbers

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
        while len(wanted):
            wanted, slots, found = self._candidates(wanted, slots, hashes)
            same = equal(found, wanted)
            rows[wanted[same]] = found[same]
            others = ~same  # their hash is that of another key
            wanted, slots = wanted[others], slots[others] + 1 & len(self._slots) - 1
        return rows

    def _candidates(self, wanted: Numbers, slots: Numbers, hashes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """Return wanted keys that have a row with the same hash, its slot from ``slots`` on, and the row."""
        last, parts = len(self._slots) - 1, []
        while len(wanted):
            found = self._slots[slots]
            same = self._hashes[found] == hashes[wanted]
            same &= found >= 0
            parts.append((wanted[same], slots[same], found[same]))
            others = ~same
            others &= found >= 0
            wanted, slots = wanted[others], slots[others] + 1 & last
        joined, at, rows = (np.concatenate(part) for part in zip(*parts, strict=True))
        return joined, at, rows

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
