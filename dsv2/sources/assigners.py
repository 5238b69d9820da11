"""Which reader gets a split: ``hash``, the default, and ``round-robin`` (FLIP-537)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar
from zlib import crc32

from dsv2.sources.source import SourceSplit

__all__ = ("HashSplitAssigner", "RoundRobinSplitAssigner", "SplitAssigner")

SplitT = TypeVar("SplitT", bound=SourceSplit)
SplitT_contra = TypeVar("SplitT_contra", bound=SourceSplit, contravariant=True)


class SplitAssigner(Protocol[SplitT_contra]):
    """Chooses readers for new splits. It keeps nothing: the enumerator remembers who has what."""

    def assign(self, splits: Sequence[SplitT_contra], held: Mapping[int, int], /) -> list[int]:
        """For each of ``splits`` the subtask that gets it. ``held``: by subtask how many splits it has, for all."""


class HashSplitAssigner(Generic[SplitT_contra]):
    """Each split has its place, whatever others there are.

    ``place(split)``: a group and a number in it (topic and partition, say). The splits of each group are spread evenly,
    from a reader on that follows from the group's name; groups together maybe not. By default each split is a group.
    """

    def __init__(self, place: Callable[[SplitT_contra], tuple[str, int]] | None = None) -> None:
        self._place = place

    def assign(self, splits: Sequence[SplitT_contra], held: Mapping[int, int], /) -> list[int]:
        """For each of ``splits`` its place."""
        places = [(split.split_id, 0) if self._place is None else self._place(split) for split in splits]
        return [(crc32(group.encode()) + number) % len(held) for group, number in places]


class RoundRobinSplitAssigner:
    """All splits together are spread evenly: each goes to the reader that has the fewest."""

    def assign(self, splits: Sequence[SourceSplit], held: Mapping[int, int], /) -> list[int]:
        """For each of ``splits``, in their order, the reader with the fewest, of those the first."""
        counts = Counter(held)
        chosen = []
        for _ in splits:
            subtask = min(held, key=lambda subtask: (counts[subtask], subtask))
            counts[subtask] += 1
            chosen.append(subtask)
        return chosen
