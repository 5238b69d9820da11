"""What a table tells of itself: its rows, and how they change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

__all__ = ("ChangeKind", "RowChange")

T_co = TypeVar("T_co", covariant=True)

ChangeKind: TypeAlias = Literal["snapshot", "insert", "update", "delete"]
"""Why a row is told of; "snapshot": it was there when the job first started."""


@dataclass(frozen=True)
class RowChange(Generic[T_co]):
    """One row as it is now. ``key``: the values of the primary key; ``row``: None if the row is deleted.

    A row that gets another key is told of as the deletion of the old one, then as the insertion of the new one.
    """

    kind: ChangeKind
    key: tuple[Any, ...]
    row: T_co | None
