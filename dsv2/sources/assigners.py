"""Split assigners: ``hash``, the default, and ``round-robin`` (FLIP-537)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar
from zlib import crc32

from dsv2.sources.source import SourceSplit

SplitT = TypeVar("SplitT", bound=SourceSplit)
SplitT_contra = TypeVar("SplitT_contra", bound=SourceSplit, contravariant=True)


class SplitAssigner(Protocol[SplitT_contra]):
    """Chooses readers for new splits. Stateless: the enumerator stores the assignment."""

    def assign(self, splits: Sequence[SplitT_contra], held: Mapping[int, int], /) -> list[int]:
        """Choose a reader for each split.

        Args:
            splits: The new splits.
            held: The number of splits of each subtask, for all subtasks.

        Returns:
            The subtask of each split, in the order of ``splits``.
        """


class HashSplitAssigner(Generic[SplitT_contra]):
    """Assigns each split independently of the other splits.

    The splits of a group are distributed evenly, beginning with a reader chosen by the hash of the group's name. The
    splits of all groups together may be distributed unevenly.

    Args:
        place: Returns the group of a split and its number in the group, such as topic and partition. None: each split
            is a group of its own.
    """

    def __init__(self, place: Callable[[SplitT_contra], tuple[str, int]] | None = None) -> None:
        self._place = place

    def assign(self, splits: Sequence[SplitT_contra], held: Mapping[int, int], /) -> list[int]:
        """See ``SplitAssigner.assign``."""
        places = [(split.split_id, 0) if self._place is None else self._place(split) for split in splits]
        return [(crc32(group.encode()) + number) % len(held) for group, number in places]


class RoundRobinSplitAssigner:
    """Distributes all splits evenly: each is assigned to the reader with the fewest splits."""

    def assign(self, splits: Sequence[SourceSplit], held: Mapping[int, int], /) -> list[int]:
        """See ``SplitAssigner.assign``. If several readers have the fewest splits, the first one is chosen."""
        counts = Counter(held)
        chosen = []
        for _ in splits:
            subtask = min(held, key=lambda subtask: (counts[subtask], subtask))
            counts[subtask] += 1
            chosen.append(subtask)
        return chosen
