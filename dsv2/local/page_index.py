"""The place of each page of a map in the log."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

_OFFSET_BITS = 40


class Extent(NamedTuple):
    """A part of a segment, in bytes."""

    segment: int
    offset: int
    size: int


class MapName(NamedTuple):
    """A map of pages.

    Attributes:
        uid: The first operator of the chain.
        subtask: The subtask of the chain.
        name: The name of the map in the subtask.
    """

    uid: str
    subtask: int
    name: str


class PageMap:
    """The pages of one map: those of the last transaction in the log, and changes that are not part of one yet.

    Pages are numbered without large gaps, so a page takes 12 bytes of memory.
    """

    __slots__ = ("_places", "_sizes", "count", "name", "new", "removed", "spilled")

    def __init__(self, name: MapName, places: bytes = b"", sizes: bytes = b"") -> None:
        self.name = name
        self.new: dict[int, bytes] = {}
        """New contents of pages that are not in the log."""
        self.spilled: dict[int, Extent] = {}
        """New contents of pages that are in the log, ahead of their transaction."""
        self.removed: set[int] = set()
        """Pages that the next transaction removes."""
        self._places, self._sizes = array("Q", places), array("I", sizes)
        self.count = len(self._sizes) - self._sizes.count(0)
        """The number of stored pages."""

    def place(self, number: int) -> Extent | None:
        """Return where a page is, as of the last transaction; None if there is none."""
        if number >= len(self._sizes) or not (size := self._sizes[number]):
            return None
        place = self._places[number]
        return Extent(place >> _OFFSET_BITS, place & (1 << _OFFSET_BITS) - 1, size)

    def put(self, number: int, data: bytes) -> None:
        """Change a page."""
        self.new[number] = data
        self.removed.discard(number)

    def remove(self, number: int) -> None:
        """Remove a page."""
        self.new.pop(number, None)
        self.spilled.pop(number, None)
        self.removed.add(number)

    def apply(self) -> int:
        """Make the changes a part of the last transaction. Returns by how many bytes all pages have grown."""
        grown = 0
        for number, place in self.spilled.items():
            grown += place.size - self._set(number, place.segment << _OFFSET_BITS | place.offset, place.size)
        for number in self.removed:
            if number < len(self._sizes):
                grown -= self._set(number, 0, 0)
        self.spilled.clear()
        self.removed.clear()
        return grown

    def stored(self) -> tuple[bytes, bytes]:
        """Return the places and the sizes, for the constructor."""
        return self._places.tobytes(), self._sizes.tobytes()

    def segments(self) -> set[int]:
        """Return the segments that have a page."""
        return {place >> _OFFSET_BITS for place, size in zip(self._places, self._sizes, strict=True) if size}

    def size(self) -> int:
        """Return the size of all stored pages in bytes."""
        return sum(self._sizes)

    def numbers(self) -> Iterator[int]:
        """Iterate over the stored pages."""
        return (number for number, size in enumerate(self._sizes) if size)

    def _set(self, number: int, place: int, size: int) -> int:
        """Set the place of a page, and return its former size."""
        if (missing := number + 1 - len(self._sizes)) > 0:
            missing = max(missing, len(self._sizes) // 8)
            self._places.frombytes(bytes(8 * missing))
            self._sizes.frombytes(bytes(4 * missing))
        before = self._sizes[number]
        self._places[number], self._sizes[number] = place, size
        self.count += bool(size) - bool(before)
        return before
