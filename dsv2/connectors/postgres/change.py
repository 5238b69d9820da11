"""What a table tells of itself: its rows, and how they change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

__all__ = ("ChangeKind", "RowChange")

T_co = TypeVar("T_co", covariant=True)


class ChangeKind(Enum):
    """Why a row is told of."""

    SNAPSHOT = "snapshot"
    """It was there when the job first started."""
    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True)
class RowChange(Generic[T_co]):
    """One row as it is now. ``key``: the values of the primary key; ``row``: None if the row is deleted.

    A row that gets another key is told of as the deletion of the old one, then as the insertion of the new one.
    """

    kind: ChangeKind
    key: tuple[Any, ...]
    row: T_co | None
