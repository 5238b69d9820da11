"""The decoded pages that stay in memory between micro-batches, so that keys in frequent use are not decoded again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

_BYTES_PER_PAGE: Final = 700  # measured, as the following, for small values
_BYTES_PER_KEY: Final = 120
_BYTES_PER_ENTRY: Final = 250  # the timers of a key
_WORKING: Final = 2  # times the memory of pages that stay, because a page that is stored early may be read again
_LEAST_WORKING: Final = 32 << 20


class KeptPage(NamedTuple):
    """A page.

    Attributes:
        data: Its bytes as they are stored.
        columns: Its decoded columns. Nothing changes the values in them.
        size: The memory that it takes, approximately.
    """

    data: bytes
    columns: Sequence[Sequence[Any]]
    size: int


class PageBudget:
    """Limits the memory for decoded pages, in all maps of a job.

    Args:
        most: The bytes for pages that stay between micro-batches.
        working: The bytes for those that a micro-batch uses. None (default): twice ``most``, at least 32 MB.
    """

    __slots__ = ("_maps", "_most", "_most_working", "_working", "size")

    def __init__(self, most: int, working: int | None = None) -> None:
        self._most = most
        self._most_working = max(_WORKING * most, _LEAST_WORKING) if working is None else working
        self._maps: list[KeptPages] = []
        self._working = 0
        self.size = 0
        """The bytes that all pages take, approximately."""

    def new_map(self) -> KeptPages:
        """Return a map without pages."""
        self._maps.append(KeptPages(self))
        return self._maps[-1]

    def enforce(self) -> None:
        """Evict some pages if there are too many. The largest map gives up those whose last use is the longest ago."""
        if self.size <= self._most:
            return
        while (excess := self.size - self._most // 8 * 7) > 0:
            largest = max(self._maps, key=lambda kept: kept.size)
            largest.evict(max(largest.size - excess, 0))

    def use(self, working: int, before: int) -> bool:
        """Note that the pages of a map that the micro-batch uses take ``working`` bytes, and took ``before``.

        Returns:
            Whether it should store them now: all maps together exceed the limit, and this one takes more than its part.
        """
        self._working += working - before
        return self._working > self._most_working and working * len(self._maps) > self._most_working

    def clear(self) -> None:
        """Called when the maps are no longer used."""
        self._maps.clear()
        self._working = 0
        self.size = 0


class KeptPages:
    """The pages of one map that stay, by last use."""

    __slots__ = ("_budget", "_pages", "_working", "size")

    def __init__(self, budget: PageBudget) -> None:
        self._budget = budget
        self._pages: dict[int, KeptPage] = {}
        self.size = 0
        """The memory that they take, approximately."""
        self._working = 0  # of the pages that the micro-batch uses, approximately

    def get(self, number: int) -> KeptPage | None:
        """Return a page, or None."""
        return self._pages.get(number)

    def has(self, number: int, data: bytes) -> bool:
        """Return whether a page is kept with these bytes."""
        page = self._pages.get(number)
        return page is not None and page.data == data

    def put(self, number: int, data: bytes, columns: Sequence[Sequence[Any]], entries: int) -> None:
        """Keep a page, which was used. ``entries``: The number of its keys with timers."""
        self.remove(number)
        size = decoded_size(len(data), 1, len(columns[0]), entries)
        self._pages[number] = KeptPage(data, columns, size)
        self.size += size
        self._budget.size += size

    def remove(self, number: int) -> None:
        """Do not keep a page any longer, if it is kept."""
        page = self._pages.pop(number, None)
        if page is not None:
            self.size -= page.size
            self._budget.size -= page.size

    def use(self, working: int) -> bool:
        """Note that the micro-batch uses pages of ``working`` bytes. Return whether it should store them now."""
        before, self._working = self._working, working
        return self._budget.use(working, before)

    def evict(self, size: int) -> None:
        """Remove the pages whose last use is the longest ago, until at most ``size`` bytes are left."""
        for number in list(self._pages):
            if self.size <= size:
                break
            self.remove(number)

    def clear(self) -> None:
        """Remove all pages."""
        self.evict(0)


def decoded_size(data: int, pages: int, keys: int, entries: int) -> int:
    """Return the approximate memory of decoded pages in bytes.

    Args:
        data: The bytes that they take when they are stored.
        pages: Their number.
        keys: The number of their keys.
        entries: The number of their keys with timers.
    """
    return 2 * data + _BYTES_PER_PAGE * pages + _BYTES_PER_KEY * keys + _BYTES_PER_ENTRY * entries
