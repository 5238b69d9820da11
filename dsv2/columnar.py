"""Records that are kept as columns, as code sees them that need not know how.

They are a sequence whose records are made when they are first asked for. So whatever takes records takes columns, and
code that can do more with columns looks for them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Self, TypeVar

__all__ = ("Columnar", "WholeNumbers", "column_names", "column_of")

T_co = TypeVar("T_co", covariant=True)


class WholeNumbers(Sequence[int], ABC):
    """A column of whole numbers, none of which is missing."""

    @property
    @abstractmethod
    def greatest(self) -> int:
        """The greatest one; there is at least one."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    @abstractmethod
    def joined(self, more: Sequence[Self]) -> Self:
        """These numbers and those behind them, as one column."""


class Columnar(Sequence[T_co], ABC):
    """Records of one class. Its slices are columnar, too."""

    kind: type[T_co]
    """The class of the records."""

    @property
    @abstractmethod
    def kept_bytes(self) -> int:
        """Bytes in memory that cannot be free before this is: for a slice those of the whole."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    @abstractmethod
    def joined(self, more: Sequence[Self]) -> Self:
        """These records and the following ones, which are of the same ``kind``."""

    @abstractmethod
    def rows(self) -> list[T_co]:
        """The records themselves; not to be changed."""

    @abstractmethod
    def whole_numbers(self, name: str) -> WholeNumbers | None:
        """The column ``name``; None if there is no such column, or if it has anything but whole numbers."""

    @abstractmethod
    def split(
        self, names: Sequence[str], max_parallelism: int, parallelism: int, timestamps: Sequence[int | None] | None
    ) -> Iterable[tuple[int, Columnar[T_co], Sequence[int | None] | None]] | None:
        """The records for each subtask, by the key that the columns ``names`` are: subtask, records, timestamps.

        None if there are no such columns. Raises ``InvalidKeyError``.
        """


def column_names(selector: Callable[..., Any]) -> tuple[str, ...] | None:
    """The columns that ``selector`` takes from a record, if it is an ``operator.attrgetter``; else None."""
    if type(selector) is not attrgetter:
        return None
    names: tuple[str, ...] = selector.__reduce__()[1]  # type: ignore[assignment]
    return None if any("." in name for name in names) else names


def column_of(records: Sequence[Any], extract: Callable[..., Any]) -> WholeNumbers | None:
    """What ``extract`` takes from each of ``records``, if both are of the kind that makes it a column."""
    if not isinstance(records, Columnar):
        return None
    names = column_names(extract)
    return records.whole_numbers(names[0]) if names is not None and len(names) == 1 else None
