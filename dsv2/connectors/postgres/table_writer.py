"""How records become rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

__all__ = ("TableWriter",)

T = TypeVar("T")


@dataclass(frozen=True)
class TableWriter(Generic[T]):
    """What becomes of records: rows of ``table``, whose ``columns`` get the values of ``row(record)``.

    ``key``: columns by which a row replaces the one that is there. ``deletes``: for which records the row of that key
    goes instead.
    """

    table: str
    columns: tuple[str, ...]
    row: Callable[[T], Sequence[Any]]
    key: tuple[str, ...]
    deletes: Callable[[T], bool] | None
