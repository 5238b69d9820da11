"""The mapping of records to rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ("TableWriter",)

T = TypeVar("T")


@dataclass(frozen=True)
class TableWriter(Generic[T]):
    """Maps records to rows.

    Attributes:
        table: The table.
        columns: The columns to write.
        row: Returns the values of ``columns`` for a record.
        key: The columns by which a row replaces an existing one; empty: rows are inserted.
        deletes: Returns whether a record deletes the row with its key instead.
    """

    table: str
    columns: tuple[str, ...]
    row: Callable[[T], Sequence[Any]]
    key: tuple[str, ...]
    deletes: Callable[[T], bool] | None
