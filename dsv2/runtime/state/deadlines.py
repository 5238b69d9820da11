"""Indexes the pages of a keyed store by their earliest deadline in one time domain.

Deadlines are grouped into blocks of pages. Only the earliest deadline of each block is always in memory, so that a
micro-batch loads only the blocks of the pages that it touches.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TypeAlias

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_store import PageStore
from dsv2.runtime.state.pages import PageCache

PAGES_PER_BLOCK = 32

DeadlinesState: TypeAlias = tuple[dict[int, int], dict[int, bytes]]


class Deadlines:
    """Maps page numbers to times. A time may be too early but never too late."""

    __slots__ = ("_blocks", "_earliest", "_heap")

    def __init__(self, codec: Codec, owner: str, store: PageStore) -> None:
        self._blocks = PageCache(codec, owner, store)
        self._earliest: dict[int, int] = {}  # by block
        self._heap: list[tuple[int, int]] = []  # current and outdated values of _earliest

    def hasten(self, page: int, time: int) -> None:
        """Add a deadline at ``time`` in ``page``."""
        block, page = divmod(page, PAGES_PER_BLOCK)
        times = self._blocks.load(block)
        if time < times.get(page, time + 1):
            times[page] = time
            self._blocks.changed.add(block)
            if time < self._earliest.get(block, time + 1):
                self._set_earliest(block, time)

    def put(self, page: int, time: int | None) -> None:
        """Set the earliest deadline in ``page`` to ``time``; None if there is none."""
        block, page = divmod(page, PAGES_PER_BLOCK)
        if time is None and block not in self._earliest:
            return
        times = self._blocks.load(block)
        before = times.get(page)
        if before == time:
            return
        self._blocks.changed.add(block)
        if time is None:
            del times[page]
        else:
            times[page] = time
        earliest = self._earliest.get(block)
        if time is not None and (earliest is None or time < earliest):
            self._set_earliest(block, time)
        elif before is not None and before == earliest:
            self._find_earliest(block)

    def next(self) -> int | None:
        """Return the earliest deadline of all pages, or None."""
        heap, earliest = self._heap, self._earliest
        while heap and earliest.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def take(self, time: int) -> list[int]:
        """Return the pages that are due at ``time``, ordered by deadline, and remove their deadlines."""
        due: list[tuple[int, int]] = []
        while (first := self.next()) is not None and first <= time:
            block = self._heap[0][1]
            times = self._blocks.load(block)
            found = [(earliest, page) for page, earliest in times.items() if earliest <= time]
            for _, page in found:
                del times[page]
            due += [(earliest, block * PAGES_PER_BLOCK + page) for earliest, page in found]
            self._blocks.changed.add(block)
            self._find_earliest(block)
        return [page for _, page in sorted(due)]

    def snapshot(self) -> DeadlinesState | None:
        """Return the earliest deadline by block and the part of the blocks stored in the blob; None if empty."""
        blocks = self._blocks.save(dict.fromkeys(sorted(self._earliest)))
        return (dict(sorted(self._earliest.items())), blocks) if self._earliest else None

    def restore(self, state: DeadlinesState | None) -> None:
        """Restore a ``snapshot``."""
        earliest, blocks = state or ({}, {})
        self._earliest = dict(earliest)
        self._blocks.adopt(blocks, dict.fromkeys(earliest))
        self._heap = [(time, block) for block, time in earliest.items()]
        heapify(self._heap)

    def _find_earliest(self, block: int) -> None:
        times = self._blocks.load(block)
        if not times:
            self._earliest.pop(block, None)
        elif self._earliest.get(block) != (first := min(times.values())):
            self._set_earliest(block, first)

    def _set_earliest(self, block: int, time: int) -> None:
        self._earliest[block] = time
        heappush(self._heap, (time, block))
