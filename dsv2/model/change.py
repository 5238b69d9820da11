"""Changes of a table: records that are added to it, replaced in it, or removed from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic

from dsv2.base.type_variables import T_co


class ChangeKind(StrEnum):
    """The kind of a change (Flink ``RowKind``)."""

    INSERT = "+I"
    """A record is added."""
    UPDATE_BEFORE = "-U"
    """The former version of a record that is replaced; the new version follows."""
    UPDATE_AFTER = "+U"
    """The new version of a record."""
    DELETE = "-D"
    """A record is removed."""

    @property
    def adds(self) -> bool:
        """True if the record belongs to the table after the change."""
        return self in (ChangeKind.INSERT, ChangeKind.UPDATE_AFTER)


@dataclass(frozen=True)
class Change(Generic[T_co]):
    """A change of a table, with the record that is added or removed.

    The table is what remains after all changes. A ``RowChange`` of ``PostgresSource`` has the key of a row instead, and
    of an update only the new version.

    Attributes:
        kind: The kind of the change.
        record: The record.
    """

    kind: ChangeKind
    record: T_co
