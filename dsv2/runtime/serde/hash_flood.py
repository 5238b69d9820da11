"""A check that the members of sets, and keys of dicts, do not share a few hashes, which takes quadratic time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dsv2.errors import CorruptDataError

FEW: Final = 256
"""So many members may have the same hash."""
_SEEDED: Final = frozenset({str, bytes})  # their hashes differ between processes, so that bytes cannot choose them
_OWN_HASHES: Final = range(-(1 << 60), 1 << 60)  # whole numbers with different hashes
_MOST_ALIKE: Final = 16


def check_hashes(members: Sequence[Any]) -> Sequence[Any]:
    """Return ``members``, which will be hashed. Raises ``CorruptDataError`` if too many have the same hash."""
    if len(members) <= FEW:
        return members
    kinds = set(map(type, members))
    if kinds <= _SEEDED or (kinds == {int} and min(members) in _OWN_HASHES and max(members) in _OWN_HASHES):
        return members
    if len(members) > _MOST_ALIKE * len(set(map(hash, members))):
        raise CorruptDataError(f"{len(members)} members of a set or keys of a dict have the same few hashes.")
    return members
