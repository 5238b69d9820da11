"""The decoded pages that stay in memory between micro-batches, so that keys in frequent use are not decoded again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

_BYTES_PER_PAGE: Final = 700  # measured, as the following, for small values
_BYTES_PER_KEY: Final = 120
_BYTES_PER_ENTRY: Final = 250  # the timers of a key


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
    """Limits the memory for the pages that stay to ``most`` bytes, in all maps of a job."""

    __slots__ = ("_maps", "_most", "size")

    def __init__(self, most: int) -> None:
        self._most = most
        self._maps: list[KeptPages] = []
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

    def clear(self) -> None:
        """Called when the maps are no longer used."""
        self._maps.clear()
        self.size = 0


class KeptPages:
    """The pages of one map that stay, by last use."""

    __slots__ = ("_budget", "_pages", "size")

    def __init__(self, budget: PageBudget) -> None:
        self._budget = budget
        self._pages: dict[int, KeptPage] = {}
        self.size = 0
        """The memory that they take, approximately."""

    def columns(self, number: int) -> Sequence[Sequence[Any]] | None:
        """Return the columns of a page; None if it is not kept."""
        page = self._pages.get(number)
        return None if page is None else page.columns

    def has(self, number: int, data: bytes) -> bool:
        """Return whether a page is kept with these bytes."""
        page = self._pages.get(number)
        return page is not None and page.data == data

    def put(self, number: int, data: bytes, columns: Sequence[Sequence[Any]], entries: int) -> None:
        """Keep a page, which was used. ``entries``: The number of its keys with timers."""
        self.remove(number)
        size = 2 * len(data) + _BYTES_PER_PAGE + _BYTES_PER_KEY * len(columns[0]) + _BYTES_PER_ENTRY * entries
        self._pages[number] = KeptPage(data, columns, size)
        self.size += size
        self._budget.size += size

    def remove(self, number: int) -> None:
        """Do not keep a page any longer, if it is kept."""
        page = self._pages.pop(number, None)
        if page is not None:
            self.size -= page.size
            self._budget.size -= page.size

    def evict(self, size: int) -> None:
        """Remove the pages whose last use is the longest ago, until at most ``size`` bytes are left."""
        for number in list(self._pages):
            if self.size <= size:
                break
            self.remove(number)

    def clear(self) -> None:
        """Remove all pages."""
        self.evict(0)
