"""Stores pages of bytes between micro-batches: in the state blob of the subtask, or as entries of a map.

The runtime chooses one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from dsv2.runtime.serde.codec import BlobKind, Codec
from dsv2.runtime.state.page_budget import PageBudget

ROWS_PER_PAGE = 256
"""The number of rows of a table that a page has, unless the runtime prefers another one."""


class PageStore(Protocol):
    """Pages by number. A micro-batch reads only the pages that it requests."""

    @property
    def most(self) -> int:
        """The maximum number of pages. With more keys, pages grow instead."""

    @property
    def page_bytes(self) -> int | None:
        """The size that pages should have on average, because each is read and written as a whole. None: any size."""

    @property
    def rows(self) -> int:
        """The number of rows of a table that a page should have on average."""

    @property
    def budget(self) -> PageBudget | None:
        """The memory for decoded pages. None: none stay after a snapshot, and all until then."""

    def get(self, number: int) -> bytes | None:
        """Return a page, or None. Raises ``CorruptDataError`` if it is damaged."""

    def put(self, number: int, page: bytes) -> None:
        """Store a page."""

    def remove(self, number: int) -> None:
        """Remove an existing page."""

    def snapshot(self) -> dict[int, bytes]:
        """Return the part that is stored in the state blob."""

    def restore(self, state: Mapping[int, bytes]) -> None:
        """Restore a ``snapshot``."""


PageStores: TypeAlias = Callable[[str, str], PageStore]
"""Creates the page store of a map. Called with its name, unique in the subtask, and its description for errors."""


class Entries(Protocol):
    """The map that a runtime stores for a subtask, as of the last completed micro-batch."""

    def get(self, name: str, number: int) -> bytes | None:
        """Return an entry, or None."""

    def put(self, name: str, number: int, data: bytes) -> None:
        """Set an entry."""

    def remove(self, name: str, number: int) -> None:
        """Remove an existing entry."""


class BlobPages:
    """Pages within the state blob. Each micro-batch reads and writes all of them."""

    __slots__ = ("_pages",)

    most = 1 << 15
    page_bytes = None
    rows = ROWS_PER_PAGE
    budget = None

    def __init__(self) -> None:
        self._pages: dict[int, bytes] = {}

    def get(self, number: int) -> bytes | None:
        """Return a page, or None."""
        return self._pages.get(number)

    def put(self, number: int, page: bytes) -> None:
        """Store a page."""
        self._pages[number] = page

    def remove(self, number: int) -> None:
        """Remove a page."""
        del self._pages[number]

    def snapshot(self) -> dict[int, bytes]:
        """Return all pages."""
        return dict(self._pages)

    def restore(self, state: Mapping[int, bytes]) -> None:
        """Restore all pages."""
        self._pages = dict(state)


class EntryPages:
    """Pages as entries of a map. Each is sealed as its own blob, because it is read independently."""

    __slots__ = ("_codec", "_entries", "_name", "_owner", "_read", "budget", "rows")

    most = 1 << 32
    page_bytes = 640  # less would cost more for each call and for the key of the entry than it saves

    def __init__(
        self,
        entries: Entries,
        name: str,
        codec: Codec,
        owner: str,
        budget: PageBudget | None = None,
        rows: int | None = None,
    ) -> None:
        self.budget = budget
        self.rows = rows or ROWS_PER_PAGE
        self._entries = entries
        self._name = name
        self._codec = codec
        self._owner = owner
        self._read: dict[int, bytes] = {}  # as they are in the map

    def get(self, number: int) -> bytes | None:
        """Return a page, or None."""
        blob = self._entries.get(self._name, number)
        if blob is None:
            return None
        self._read[number] = blob
        return self._codec.unwrap(BlobKind.PAGE, blob, f"{self._owner}, page {number}")

    def put(self, number: int, page: bytes) -> None:
        """Store a page unless it is unchanged, because many pages are only read."""
        blob = self._codec.wrap(BlobKind.PAGE, page)
        if self._read.get(number) != blob:
            self._entries.put(self._name, number, blob)
            self._read[number] = blob

    def remove(self, number: int) -> None:
        """Remove a page."""
        self._entries.remove(self._name, number)
        self._read.pop(number, None)

    def snapshot(self) -> dict[int, bytes]:
        """Return nothing: the map has all pages."""
        self._read.clear()
        return {}

    def restore(self, state: Mapping[int, bytes]) -> None:
        """Clear the cache, so that pages are read from the map again."""
        self._read.clear()


def in_blob(name: str, owner: str) -> PageStore:
    """Create a page store within the state blob (``PageStores``)."""
    return BlobPages()


def in_entries(entries: Entries, codec: Codec, budget: PageBudget | None = None, rows: int | None = None) -> PageStores:
    """Return ``PageStores`` that use a map of the runtime.

    Args:
        entries: The map.
        codec: Wraps pages.
        budget: The memory for decoded pages. None: none stay after a snapshot, and all until then.
        rows: The number of rows of a table that a page should have on average. None: ``ROWS_PER_PAGE``.
    """
    return lambda name, owner: EntryPages(entries, name, codec, owner, budget, rows)
