"""Indexes the pages of a keyed store by their earliest deadline in one time domain.

The index is a tree. Deadlines are grouped into blocks of pages, the earliest deadlines of blocks into blocks of blocks,
and so on. Only one block at the top is always in memory, so that a micro-batch loads and stores only the blocks above
the pages that it touches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.page_store import PageStore, PageStores
from dsv2.runtime.state.pages import PageCache

PAGES_PER_BLOCK = 32

DeadlinesState: TypeAlias = tuple[dict[int, int], list[dict[int, bytes]]]


class Deadlines:
    """Maps page numbers to times. A time may be too early but never too late.

    Args:
        codec: Serializes blocks.
        owner: Names the index in error messages.
        stores: Creates the stores of blocks, one for each level.
        name: The name of the stores, with the level behind it.
    """

    __slots__ = ("_levels", "_new_level", "_room", "_root")

    def __init__(self, codec: Codec, owner: str, stores: PageStores, name: str) -> None:
        def new_level(level: int) -> _Blocks:
            return _Blocks(codec, owner, stores(f"{name}/{level}", owner), partial(self._has, level))

        self._new_level = new_level
        self._levels: list[_Blocks] = []  # level 0 has times of pages, the next one those of its blocks
        self._root: dict[int, int] = {}  # the only block of the level above them
        self._room = PAGES_PER_BLOCK  # for so many pages

    def hasten(self, page: int, time: int) -> None:
        """Add a deadline at ``time`` in ``page``."""
        self._grow(page)
        block, place = divmod(page, PAGES_PER_BLOCK)
        if time < self._block(0, block).get(place, time + 1):
            self.put(page, time)

    def put(self, page: int, time: int | None) -> None:
        """Set the earliest deadline in ``page`` to ``time``; None if there is none."""
        if time is not None:
            self._grow(page)
        elif page >= self._room:
            return
        for level in range(len(self._levels) + 1):
            block, place = divmod(page, PAGES_PER_BLOCK)
            times = self._block(level, block)
            if times.get(place) == time:
                return
            if time is None:
                del times[place]
            else:
                times[place] = time
            if level < len(self._levels):
                self._levels[level].changed.add(block)
                page, time = block, min(times.values(), default=None)

    def next(self) -> int | None:
        """Return the earliest deadline of all pages, or None."""
        return min(self._root.values(), default=None)

    def take(self, time: int) -> list[int]:
        """Return the pages that are due at ``time``, ordered by deadline, and remove their deadlines."""
        found = [(time, 0)]
        for level in range(len(self._levels), -1, -1):
            found = [
                (first, number * PAGES_PER_BLOCK + place)
                for _, number in found
                for place, first in self._block(level, number).items()
                if first <= time
            ]
        pages = [page for _, page in sorted(found)]
        for page in reversed(pages):  # the earliest of a block last, so that the level above changes once
            self.put(page, None)
        return pages

    def snapshot(self) -> DeadlinesState | None:
        """Return the block at the top, and the part of each level that is stored in the blob; None if empty."""
        blobs = [blocks.save({number for number in blocks.changed if blocks.load(number)}) for blocks in self._levels]
        return (dict(sorted(self._root.items())), blobs) if self._root else None

    def restore(self, state: DeadlinesState | None) -> None:
        """Restore a ``snapshot``."""
        root, blobs = state or ({}, [])
        self._root = dict(root)
        self._levels = [self._new_level(level) for level in range(len(blobs))]
        self._room = PAGES_PER_BLOCK ** (len(blobs) + 1)
        for blocks, blob in zip(self._levels, blobs, strict=True):
            blocks.adopt(blob, set())

    def _grow(self, page: int) -> None:
        """Add levels until there is room for ``page``."""
        while page >= self._room:
            blocks = self._new_level(len(self._levels))
            self._levels.append(blocks)
            if self._root:
                blocks.put(0, self._root)
                self._root = {0: min(self._root.values())}
            self._room *= PAGES_PER_BLOCK

    def _block(self, level: int, number: int) -> dict[int, int]:
        return self._levels[level].load(number) if level < len(self._levels) else self._root

    def _has(self, level: int, number: int) -> bool:
        """Return whether a block that is not loaded is stored: then the level above has its earliest deadline."""
        block, place = divmod(number, PAGES_PER_BLOCK)
        return place in self._block(level + 1, block)


class _Blocks(PageCache):
    """The blocks of one level. ``stored`` has those that are known to be stored."""

    __slots__ = ("_has",)

    stored: set[int]

    def __init__(self, codec: Codec, owner: str, store: PageStore, has: Callable[[int], bool]) -> None:
        super().__init__(codec, owner, store)
        self.stored = set()
        self._has = has

    def put(self, number: int, times: dict[int, int]) -> None:
        """Add a block, which is not stored."""
        self._decoded[number] = times
        self.changed.add(number)

    def _is_stored(self, number: int) -> bool:
        if not self._has(number):
            return False
        self.stored.add(number)
        return True
