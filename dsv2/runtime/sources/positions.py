"""The positions of the records of a batch of a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

from dsv2.base.record_position import Offset, RecordPosition, SplitName


class Positions:
    """The positions of the records of one batch in the source. Offsets are determined when they are needed."""

    def __init__(self, source: str, split: SplitName, offsets: Callable[[], Sequence[Offset]]) -> None:
        """``source``: The uid of the source. ``offsets``: Returns the offset of each record."""
        self._source = source
        self._split = split
        self._offsets = offsets

    @cached_property
    def offsets(self) -> Sequence[Offset]:
        """The offset of each record."""
        return self._offsets()

    def at(self, index: int) -> RecordPosition:
        """The position of the record at ``index`` of the batch."""
        return RecordPosition(self._source, self._split, self.offsets[index])

    def packed(self, index: int) -> tuple[str, SplitName, Offset]:
        """The parts of the position of the record at ``index``."""
        return self._source, self._split, self.offsets[index]

    def taken(self, indices: Sequence[int]) -> Positions:
        """The positions of the records at ``indices``."""
        return Positions(self._source, self._split, lambda: [self.offsets[index] for index in indices])

    def after(self, first: int) -> Positions:
        """The positions of the records from ``first`` on."""
        return Positions(self._source, self._split, lambda: self.offsets[first:])
