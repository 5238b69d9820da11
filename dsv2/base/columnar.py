"""The interface of columnar records; ``dsv2.arrow`` implements it.

Columnar records are a sequence that creates its row objects on first access. So code that processes rows also accepts
columns, and code with a faster path for columns checks for ``Columnar``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Self

from dsv2.base.type_variables import T_co


class WholeNumbers(Sequence[int], ABC):
    """A column of integers without nulls."""

    @property
    @abstractmethod
    def greatest(self) -> int:
        """The maximum. The column must not be empty."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    @abstractmethod
    def joined(self, more: Sequence[Self]) -> Self:
        """This column followed by the columns ``more``."""


class Columnar(Sequence[T_co], ABC):
    """Records of one class, stored as columns. Slices are columnar as well."""

    kind: type[T_co]
    """The class of the records."""

    @property
    @abstractmethod
    def kept_bytes(self) -> int:
        """Bytes of memory that this object keeps alive. A slice counts the whole buffer that it refers to."""

    @abstractmethod
    def __getitem__(self, index: Any) -> Any: ...

    @abstractmethod
    def joined(self, more: Sequence[Self]) -> Self:
        """These records followed by ``more``, which must have the same ``kind``."""

    @abstractmethod
    def rows(self) -> list[T_co]:
        """The records as objects. Do not modify the list."""

    @abstractmethod
    def whole_numbers(self, name: str) -> WholeNumbers | None:
        """The column ``name``, or None if there is no such column or it is not a column of integers without nulls."""

    @abstractmethod
    def split(
        self, names: Sequence[str], max_parallelism: int, parallelism: int, timestamps: Sequence[int | None] | None
    ) -> Iterable[tuple[int, Columnar[T_co], Sequence[int | None] | None]] | None:
        """Partition the records by key.

        Args:
            names: The columns that form the key.
            max_parallelism: Number of key groups.
            parallelism: Number of subtasks that receive the records.
            timestamps: Event timestamps in ms, one per record, or None.

        Returns:
            Subtask index, records and timestamps per receiving subtask; None if there are no such columns.

        Raises:
            InvalidKeyError: A value is not supported as a key.
        """


class ComputedKey(Sequence[str], ABC):
    """A key selector that computes the columns of keys. It is the sequence of their names."""

    types: Sequence[type]
    """The types of the columns."""
    fields: Sequence[str]
    """The fields of records that it reads."""

    @abstractmethod
    def __call__(self, record: Any) -> Any: ...

    @abstractmethod
    def columns_of(self, table: Any) -> list[Any]:
        """Return the columns for the rows of an Arrow table."""

    @abstractmethod
    def prepare(self, records: Sequence[Any]) -> None:
        """Compute the keys of records for which it is about to be called."""


def fields_read(names: Sequence[str]) -> Sequence[str]:
    """The fields that are read for a key of these columns."""
    return names.fields if isinstance(names, ComputedKey) else names


def types_of_key(names: Sequence[str], types: Mapping[str, Any]) -> Sequence[Any]:
    """The types of the columns of a key. ``types``: Those of the fields of the records."""
    return names.types if isinstance(names, ComputedKey) else [types.get(name, object) for name in names]


def column_names(selector: Callable[..., Any]) -> Sequence[str] | None:
    """The columns of the keys of ``selector``, a ``ComputedKey`` or an ``operator.attrgetter`` without dotted names.

    None: It is another one.
    """
    if isinstance(selector, ComputedKey):
        return selector
    if type(selector) is not attrgetter:
        return None
    names: tuple[str, ...] = selector.__reduce__()[1]  # type: ignore[assignment]
    return None if any("." in name for name in names) else names


def column_of(records: Sequence[Any], extract: Callable[..., Any]) -> WholeNumbers | None:
    """The results of ``extract`` on ``records`` as a column; None unless ``extract`` reads an integer column."""
    if not isinstance(records, Columnar):
        return None
    names = column_names(extract)
    return records.whole_numbers(names[0]) if names is not None and len(names) == 1 else None
