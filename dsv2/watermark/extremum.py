"""The least or the greatest value of a set of channels, at a cost that hardly depends on their number."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

V = TypeVar("V", bound=float)

_FEW = 8  # channels: comparing all of them is faster than a heap


class Extremum(Generic[V]):
    """The least or the greatest of the last values of channels. Values may rise and fall.

    A heap holds the values, and some that were replaced since. Those are removed when they reach the top, or when they
    outnumber the others. So a change takes O(log n) in n channels, amortized.
    """

    __slots__ = ("_best", "_heap", "_sign", "_values")

    def __init__(self, greatest: bool, values: Iterable[tuple[int, V]] = ()) -> None:
        self._best = max if greatest else min
        self._sign = -1 if greatest else 1
        self._values = dict(values)
        self._heap: list[tuple[float, int]] = []  # (value or its negative, channel). Empty: not in use

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, channel: int) -> bool:
        return channel in self._values

    def put(self, channel: int, value: V) -> None:
        """Set the value of ``channel``, which may be a new one."""
        self._values[channel] = value
        if not self._heap:
            return
        if len(self._heap) > 2 * len(self._values):
            self._heap.clear()
        else:
            heappush(self._heap, (self._sign * value, channel))

    def discard(self, channel: int) -> None:
        """Remove the value of ``channel`` if it has one."""
        self._values.pop(channel, None)

    def value(self, others: Sequence[V] = ()) -> V:
        """Return the least or the greatest value, and of ``others``. There must be one."""
        if others:
            return self._best([*others, self.value()] if self._values else others)
        values = self._values
        if len(values) <= _FEW:
            if self._heap:
                self._heap.clear()
            return self._best(values.values())
        sign, heap = self._sign, self._heap or self._new_heap()
        while True:
            key, channel = heap[0]
            if channel in values and sign * values[channel] == key:
                return values[channel]
            heappop(heap)

    def _new_heap(self) -> list[tuple[float, int]]:
        self._heap = [(self._sign * value, channel) for channel, value in self._values.items()]
        heapify(self._heap)
        return self._heap
