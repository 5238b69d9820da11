"""Vector clocks as watermark values: one integer for each source split or partition."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class VectorClock(Mapping[str, int]):
    """An immutable mapping of names to integers. It equals any mapping with the same entries.

    ``a <= b`` if no entry of ``a`` is missing in ``b`` or greater there. Two vectors may be unordered.

    Args:
        entries: The entries.
    """

    entries: tuple[tuple[str, int], ...]

    def __init__(self, entries: Mapping[str, int]) -> None:
        object.__setattr__(self, "entries", tuple(sorted(entries.items())))

    def __getitem__(self, name: str) -> int:
        place = bisect_left(self.entries, name, key=itemgetter(0)) if isinstance(name, str) else len(self.entries)
        if place == len(self.entries) or self.entries[place][0] != name:
            raise KeyError(name)
        return self.entries[place][1]

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __hash__(self) -> int:
        return hash(frozenset(self.entries))

    def __le__(self, other: Mapping[str, int]) -> bool:
        return all(name in other and value <= other[name] for name, value in self.entries)

    def __lt__(self, other: Mapping[str, int]) -> bool:
        return self <= other and self != other

    def __ge__(self, other: Mapping[str, int]) -> bool:
        return all(name in self and value <= self[name] for name, value in other.items())

    def __gt__(self, other: Mapping[str, int]) -> bool:
        return self >= other and self != other

    def __repr__(self) -> str:
        return f"VectorClock({dict(self.entries)!r})"

    @staticmethod
    def merged(vectors: Iterable[Mapping[str, int]], better: Callable[[int, int], int]) -> VectorClock:
        """Merge entry by entry with ``better``, ``min`` or ``max``. An entry that a vector lacks is left out."""
        found: dict[str, int] = {}
        for vector in vectors:
            for name, value in vector.items():
                found[name] = better(found[name], value) if name in found else value
        return VectorClock(found)
