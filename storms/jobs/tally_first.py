"""The first form of the record that the upgraded job keeps for each key."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ("Tally",)


class Tally(NamedTuple):
    """The number of records, and the last one."""

    records: int = 0
    last: int = -1
