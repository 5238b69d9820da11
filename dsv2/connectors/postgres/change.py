"""The records of ``PostgresSource``: rows and their changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias

from dsv2.base.type_variables import T_co

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


@dataclass(frozen=True)
class UndecodedValue:
    """A value in the dead letter of a row, instead of the Python value that there is not.

    Attributes:
        column: The name of its column.
        type: The name of its type.
        text: The value as the server writes it. None: a large value that is not in the server's log.
        reason: The reason that there is no Python value.
    """

    column: str
    type: str
    text: str | None
    reason: str
