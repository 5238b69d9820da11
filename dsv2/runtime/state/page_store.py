"""Where pages of bytes are between micro-batches: in the state blob of the subtask, or each by itself in a map.

What is above only counts its pages from 0; which of the two it is, the runtime decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

from dsv2.runtime.serde.codec import BlobKind, Codec

__all__ = ("BlobPages", "Entries", "EntryPages", "PageStore", "PageStores", "in_blob", "in_entries")


class PageStore(Protocol):
    """Pages by number. Those that were not put last are not touched by a micro-batch that does not ask for them."""

    @property
    def most(self) -> int:
        """How many pages it is good for; with more keys they get larger instead."""

    def get(self, number: int) -> bytes | None:
        """The page that was put last, None if there is none. Raises ``CorruptDataError`` if it is not whole."""

    def put(self, number: int, page: bytes) -> None:
        """Keep a page."""

    def remove(self, number: int) -> None:
        """Forget a page that is there."""

    def snapshot(self) -> dict[int, bytes]:
        """The part of it that goes into the state blob."""

    def restore(self, state: Mapping[int, bytes]) -> None:
        """Take over an earlier ``snapshot``."""


PageStores: TypeAlias = Callable[[str, str], PageStore]
"""Gives the store of a map by its name, which no other map of the subtask has, and the words for it in errors."""


class Entries(Protocol):
    """The map that a runtime keeps for a subtask. It is as the last finished micro-batch has left it."""

    def get(self, name: str, number: int) -> bytes | None:
        """An entry, or None."""

    def put(self, name: str, number: int, data: bytes) -> None:
        """Set an entry."""

    def remove(self, name: str, number: int) -> None:
        """Remove an entry that is there."""


class BlobPages:
    """Pages that are part of the state blob, so each micro-batch moves all of them."""

    __slots__ = ("_pages",)

    most = 1 << 15

    def __init__(self) -> None:
        self._pages: dict[int, bytes] = {}

    def get(self, number: int) -> bytes | None:
        """The page."""
        return self._pages.get(number)

    def put(self, number: int, page: bytes) -> None:
        """Keep it."""
        self._pages[number] = page

    def remove(self, number: int) -> None:
        """Forget it."""
        del self._pages[number]

    def snapshot(self) -> dict[int, bytes]:
        """All of them."""
        return dict(self._pages)

    def restore(self, state: Mapping[int, bytes]) -> None:
        """Take over all of them."""
        self._pages = dict(state)


class EntryPages:
    """Pages that are entries of a map. Each is sealed as a blob of its own, for it is read without the others."""

    __slots__ = ("_codec", "_entries", "_name", "_owner", "_read")

    most = 1 << 32

    def __init__(self, entries: Entries, name: str, codec: Codec, owner: str) -> None:
        self._entries = entries
        self._name = name
        self._codec = codec
        self._owner = owner
        self._read: dict[int, bytes] = {}  # as they are in the map

    def get(self, number: int) -> bytes | None:
        """The page."""
        blob = self._entries.get(self._name, number)
        if blob is None:
            return None
        self._read[number] = blob
        return self._codec.unwrap(BlobKind.PAGE, blob, f"{self._owner}, page {number}")

    def put(self, number: int, page: bytes) -> None:
        """Keep it, unless it is what is there: many a page is only looked at."""
        blob = self._codec.wrap(BlobKind.PAGE, page)
        if self._read.get(number) != blob:
            self._entries.put(self._name, number, blob)
            self._read[number] = blob

    def remove(self, number: int) -> None:
        """Forget it."""
        self._entries.remove(self._name, number)
        self._read.pop(number, None)

    def snapshot(self) -> dict[int, bytes]:
        """Nothing: the map has all of them."""
        return {}

    def restore(self, state: Mapping[int, bytes]) -> None:
        """Read anew from the map."""
        self._read.clear()


def in_blob(name: str, owner: str) -> PageStore:
    """``PageStores`` within the state blob."""
    return BlobPages()


def in_entries(entries: Entries, codec: Codec) -> PageStores:
    """``PageStores`` over a map of the runtime."""
    return lambda name, owner: EntryPages(entries, name, codec, owner)
