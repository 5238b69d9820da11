"""What a field of the result of an aggregation holds."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

from dsv2.arguments import is_whole_number
from dsv2.errors import PlanError, SchemaError

__all__ = (
    "Aggregate",
    "Count",
    "First",
    "Key",
    "Last",
    "Max",
    "Mean",
    "Min",
    "Part",
    "Sum",
    "WindowEnd",
    "WindowStart",
)

_INT64 = 1 << 63


class Part:
    """A part of the result: an aggregate, the key, or the bounds of the window."""

    def __str__(self) -> str:
        """Return it as programs declare it."""
        arguments = (repr(value) for value in vars(self).values() if value not in ("", None))
        return f"{type(self).__name__}({', '.join(arguments)})"


def _check_field(part: Part, field: object) -> None:
    if not isinstance(field, str):
        raise PlanError(f"aggregate: {type(part).__name__} takes the name of a field, not {field!r}.")


@dataclass(frozen=True)
class Aggregate(Part):
    """An aggregate of a field of the records. Records whose field is None are left out.

    Args:
        field: The name of the field.

    Raises:
        PlanError: ``field`` is not a string.
    """

    field: str
    how: ClassVar[str]
    """How columns are aggregated, see ``ArrowKeyedState.aggregate``."""

    def __post_init__(self) -> None:
        _check_field(self, self.field)

    def first(self, value: Any) -> Any:
        """Return the aggregate of one value."""
        return value

    @abstractmethod
    def fold(self, before: Any, value: Any) -> Any:
        """Return the aggregate of the values before and one more. Neither is None."""

    def merge(self, first: Any, second: Any) -> Any:
        """Return the aggregate of the values of two aggregates. Neither is None."""
        return self.fold(first, second)


@dataclass(frozen=True)
class Sum(Aggregate):
    """The sum of a number field. Whole numbers must fit 64 bits; floats are added in the order of arrival."""

    how: ClassVar[str] = "sum"

    def first(self, value: Any) -> Any:
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise SchemaError(f"A sum exceeds 64 bits: {value}.")
        return value

    def fold(self, before: Any, value: Any) -> Any:
        total = before + value
        if isinstance(total, int) and not -_INT64 <= total < _INT64:
            raise SchemaError(f"A sum exceeds 64 bits: {before} + {value}.")
        return total


@dataclass(frozen=True)
class Count(Aggregate):
    """The number of records, or of those whose ``field`` is not None."""

    field: str = ""
    how: ClassVar[str] = "sum"

    def first(self, value: Any) -> int:
        return 1

    def fold(self, before: int, value: Any) -> int:
        return before + 1

    def merge(self, first: int, second: int) -> int:
        return first + second


@dataclass(frozen=True)
class Min(Aggregate):
    """The least value of a field. NaN is less than all numbers."""

    how: ClassVar[str] = "min"

    def fold(self, before: Any, value: Any) -> Any:
        return value if value < before or value != value else before


@dataclass(frozen=True)
class Max(Aggregate):
    """The greatest value of a field. NaN is greater than all numbers."""

    how: ClassVar[str] = "max"

    def fold(self, before: Any, value: Any) -> Any:
        return value if value > before or value != value else before


@dataclass(frozen=True)
class First(Aggregate):
    """The first value of a field, in the order of arrival."""

    how: ClassVar[str] = "first"

    def fold(self, before: Any, value: Any) -> Any:
        return before


@dataclass(frozen=True)
class Last(Aggregate):
    """The last value of a field, in the order of arrival."""

    how: ClassVar[str] = "last"

    def fold(self, before: Any, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Mean(Part):
    """The mean of a number field: ``Sum`` divided by ``Count``, as a float. Records whose field is None are left out.

    Args:
        field: The name of the field.

    Raises:
        PlanError: ``field`` is not a string.
    """

    field: str

    def __post_init__(self) -> None:
        _check_field(self, self.field)

    @staticmethod
    def of(total: Any, count: int) -> float | None:
        """Return the mean of ``count`` numbers; None if there are none. Of exact sums it is the nearest float."""
        if total is None:
            return None
        if isinstance(total, Decimal) and total.is_finite():
            total = Fraction(total)
        return float(total / count)


@dataclass(frozen=True)
class Key(Part):
    """The key.

    Args:
        index: The part of a key that is a tuple. None: the whole key.

    Raises:
        PlanError: ``index`` is not an int.
    """

    index: int | None = None

    def __post_init__(self) -> None:
        if self.index is not None and not is_whole_number(self.index):
            raise PlanError(f"aggregate: Key takes the index of a part of the key, or nothing, not {self.index!r}.")

    def of(self, key: Any) -> Any:
        """Return the part of a key."""
        return key if self.index is None else key[self.index]


@dataclass(frozen=True)
class WindowStart(Part):
    """The start of the window in ms."""


@dataclass(frozen=True)
class WindowEnd(Part):
    """The end of the window in ms: the first ms after it."""
