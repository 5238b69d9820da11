"""The content of a field in the result of an aggregation."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from fractions import Fraction
from numbers import Number
from typing import Any, ClassVar

from dsv2.checks.arguments import is_whole_number
from dsv2.errors import PlanError, SchemaError

_INT64 = 1 << 63
_DIGITS = 1_000
_EXACT = Context(prec=_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])
"""Sums of decimals are exact. The default context of Python rounds them to 28 digits."""
_EXPONENTS = 400
"""The mean of decimals with larger exponents is infinite or 0 as a float."""


def added(first: Any, second: Any) -> Any:
    """Return the exact sum of two numbers. NaN, also a signaling one, and opposite infinities result in NaN.

    Raises:
        SchemaError: A sum of whole numbers exceeds 64 bits, or one of decimals has more than 1,000 digits.
    """
    first, second = _plain(first), _plain(second)
    if isinstance(first, Decimal) or isinstance(second, Decimal):
        try:
            return _EXACT.add(first, second)
        except Inexact as error:
            raise SchemaError(f"A sum has more than {_DIGITS:,} digits: {first:.9E} + {second:.9E}.") from error
    total = first + second
    if isinstance(total, int) and not -_INT64 <= total < _INT64:
        raise SchemaError(f"A sum exceeds 64 bits: {first} + {second}.")
    return total


def _plain(number: Any) -> Any:
    """The number as Python's. Those of numpy would overflow, and be rounded to their size."""
    return number.item() if isinstance(number, Number) and hasattr(number, "item") else number


class Part:
    """A part of the result: an aggregate, the key, or the bounds of the window."""

    def __str__(self) -> str:
        """Return it as programs declare it."""
        arguments = (repr(value) for value in vars(self).values() if value not in ("", None))
        return f"{type(self).__name__}({', '.join(arguments)})"


@dataclass(frozen=True)
class FieldPart(Part):
    """A part of the result that is computed from a field of the records."""

    field: str

    def __post_init__(self) -> None:
        if not isinstance(self.field, str):
            raise PlanError(f"aggregate: {type(self).__name__} takes the name of a field, not {self.field!r}.")


@dataclass(frozen=True)
class Aggregate(FieldPart):
    """An aggregate of a field of the records. Records whose field is None are left out.

    Args:
        field: The name of the field.

    Raises:
        PlanError: ``field`` is not a string.
    """

    how: ClassVar[str]
    """The name of the aggregation of columns, see ``ArrowKeyedState.aggregate``."""

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
    """The sum of a number field, see ``added``. Floats are added in the order of arrival."""

    how: ClassVar[str] = "sum"

    def first(self, value: Any) -> Any:
        value = _plain(value)
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise SchemaError(f"A sum exceeds 64 bits: {value}.")
        return value

    def fold(self, before: Any, value: Any) -> Any:
        kind = type(value)
        if kind is float:
            return before + value
        if kind is int is type(before) and -_INT64 <= (total := before + value) < _INT64:
            return total
        return added(before, value)


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
        try:
            return value if value < before or value != value else before
        except InvalidOperation:
            return before if _is_nan(before) else value


@dataclass(frozen=True)
class Max(Aggregate):
    """The greatest value of a field. NaN is greater than all numbers."""

    how: ClassVar[str] = "max"

    def fold(self, before: Any, value: Any) -> Any:
        try:
            return value if value > before or value != value else before
        except InvalidOperation:
            return before if _is_nan(before) else value


def _is_nan(value: Any) -> bool:
    """Decimals that are NaN cannot be compared, and signaling ones not even with themselves."""
    return value.is_nan() if isinstance(value, Decimal) else bool(value != value)


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
class Mean(FieldPart):
    """The mean of a number field: ``Sum`` divided by ``Count``, as a float. Records whose field is None are left out.

    Args:
        field: The name of the field.

    Raises:
        PlanError: ``field`` is not a string.
    """

    @staticmethod
    def of(total: Any, count: int) -> float | None:
        """Return the mean of ``count`` numbers; None if there are none. Of exact sums it is the nearest float."""
        if total is None:
            return None
        if not isinstance(total, Decimal):
            return float(total / count)
        if total.is_nan():
            return math.nan
        if not total.is_finite() or abs(total.adjusted()) > _EXPONENTS:
            return float(total)
        try:
            return float(Fraction(total) / count)
        except OverflowError:
            return float(total)


@dataclass(frozen=True)
class Key(Part):
    """The key.

    Args:
        index: The part of a key that is a tuple. Any other key has one part, itself. None: the whole key.

    Raises:
        PlanError: ``index`` is not an int.
    """

    index: int | None = None

    def __post_init__(self) -> None:
        if self.index is not None and not is_whole_number(self.index):
            raise PlanError(f"aggregate: Key takes the index of a part of the key, or nothing, not {self.index!r}.")

    def of(self, key: Any) -> Any:
        """Return the part of a key.

        Raises:
            SchemaError: It has none.
        """
        if self.index is None:
            return key
        parts = key if isinstance(key, tuple) else (key,)
        try:
            return parts[self.index]
        except IndexError as error:
            text = f"{self} is not possible: the key {key!r:.80} has {len(parts)} {'parts' if parts[1:] else 'part'}."
            raise SchemaError(text) from error


@dataclass(frozen=True)
class WindowStart(Part):
    """The start of the window in ms."""


@dataclass(frozen=True)
class WindowEnd(Part):
    """The end of the window in ms: the first ms after it."""
