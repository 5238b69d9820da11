"""The second form of the record that the upgraded job keeps for each key.

It is renamed, moved and reordered, and has a new field.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("Balance",)


@dataclass(frozen=True)
class Balance:
    """The number of records, and the last one."""

    last: int = -1
    note: str = "new"
    records: int = 0
