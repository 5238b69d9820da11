"""Sets of letters, written as ids of letters and as ranges of micro-batches all of whose letters belong to the set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import pairwise

_BETWEEN = "-"


class LetterIds:
    """A set of letters.

    Args:
        entries: Ids of letters, and ranges of micro-batches, ``FIRST-LAST``.
    """

    def __init__(self, entries: Iterable[str]) -> None:
        self._ids = set[str]()
        self._ranges: list[tuple[int, int]] = []
        for entry in entries:
            if _BETWEEN in entry:
                self._ranges.append(_bounds(entry))
            else:
                self._ids.add(entry)

    def __contains__(self, entry: str) -> bool:
        """Return whether a letter, or each letter of a range, belongs to the set."""
        if entry in self._ids:
            return True
        first, last = _bounds(entry) if _BETWEEN in entry else (batch_of(entry), batch_of(entry))
        return any(start <= first and last <= stop for start, stop in self._ranges)


def batch_of(letter: str) -> int:
    """Return the micro-batch of a letter, by its id."""
    return int(letter.partition(".")[0])


def compacted(
    entries: Sequence[str], batches: Collection[int], letters_of: Callable[[int], Collection[str]]
) -> list[str]:
    """Return the same set with fewer entries.

    Args:
        entries: The entries.
        batches: The micro-batches whose letters are known.
        letters_of: Returns the ids of all letters of a micro-batch that may belong to the set.
    """
    ids = [entry for entry in entries if _BETWEEN not in entry]
    known = LetterIds(ids)
    in_part = {batch_of(one) for one in ids} & set(batches)
    whole = {batch for batch in in_part if all(one in known for one in letters_of(batch))}
    ranges = sorted({*(_bounds(entry) for entry in entries if _BETWEEN in entry), *((one, one) for one in whole)})
    left = [one for one in ids if batch_of(one) not in whole]
    return [f"{first}{_BETWEEN}{last}" for first, last in _joined(ranges, sorted(batches))] + left


def _joined(ranges: Sequence[tuple[int, int]], batches: Sequence[int]) -> list[tuple[int, int]]:
    """Join ranges if the micro-batches where they meet have letters, and none between them does."""
    after = dict(pairwise(batches))
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and (first <= joined[-1][1] or after.get(joined[-1][1]) == first):
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _bounds(entry: str) -> tuple[int, int]:
    first, _, last = entry.partition(_BETWEEN)
    return int(first), int(last)
