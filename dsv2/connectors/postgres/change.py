"""The records of ``PostgresSource``: rows and their changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

__all__ = ("ChangeKind", "RowChange")

T_co = TypeVar("T_co", covariant=True)

ChangeKind: TypeAlias = Literal["snapshot", "insert", "update", "delete"]
"""The kind of a change. "snapshot": the row existed when the job first started."""


@dataclass(frozen=True)
class RowChange(Generic[T_co]):
    """The new version of a row.

    An update that changes the primary key is emitted as a deletion of the old key and an insertion of the new one.

    Attributes:
        kind: The kind of the change.
        key: The values of the primary key.
        row: The decoded row; None if the row was deleted.
    """

    kind: ChangeKind
    key: tuple[Any, ...]
    row: T_co | None
