"""The content of a field in the result of an aggregation."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from dataclasses import field as dataclass_field
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from numbers import Number
from typing import TYPE_CHECKING, Any, ClassVar

from dsv2.checks.arguments import is_whole_number
from dsv2.errors import PlanError, SchemaError

if TYPE_CHECKING:
    from narwhals import Expr

_INT64 = 1 << 63
_DIGITS = 1_000
_EXACT = Context(prec=_DIGITS, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])
"""Sums of decimals are exact. The default context of Python rounds them to 28 digits."""


def added(first: Any, second: Any) -> Any:
    """Return the exact sum of two numbers. NaN, also a signaling one, and opposite infinities result in NaN.

    Raises:
        SchemaError: A sum of whole numbers exceeds 64 bits, or one of decimals has more than 1,000 digits.
    """
    first, second = plain(first), plain(second)
    if isinstance(first, Decimal) or isinstance(second, Decimal):
        try:
            return _EXACT.add(first, second)
        except Inexact as error:
            raise SchemaError(f"A sum has more than {_DIGITS:,} digits: {first:.9E} + {second:.9E}.") from error
    total = first + second
    if isinstance(total, int) and not -_INT64 <= total < _INT64:
        raise SchemaError(f"A sum exceeds 64 bits: {first} + {second}.")
    return total


def plain(number: Any) -> Any:
    """Return the number as Python's. Those of numpy would overflow, and be rounded to their size."""
    return number.item() if isinstance(number, Number) and hasattr(number, "item") else number


class Part:
    """A part of the result: an aggregate, the key, or the bounds of the window."""

    def __str__(self) -> str:
        """Return it as programs declare it."""
        return f"{type(self).__name__}({', '.join(self._arguments())})"

    def _arguments(self) -> Iterator[str]:
        for field in fields(self):  # type: ignore[arg-type]  # subclasses are dataclasses
            value = getattr(self, field.name)
            if value is not field.default:
                yield f"{field.name}={_shown(value)}" if field.kw_only else _shown(value)


def _shown(value: object) -> str:
    """The text of an argument. It must be the same in every process, because it is stored."""
    if isinstance(value, str | int) or hasattr(value, "alias"):  # an expression
        return repr(value)
    return getattr(value, "__qualname__", type(value).__qualname__)


@dataclass(frozen=True)
class Aggregate(Part):
    """An aggregate of a field of the records. Records whose field is None are left out.

    It is computed from accumulators, which state holds as fields with the name of the field of the result, ``__`` and
    their own. The accumulators of no values are ``empty``.

    Args:
        field: The name of the field.
        filter: Only the records for which it is true are aggregated: an expression of narwhals
            (``nw.col("price") > 100``; null counts as false), or a function that is called with the record.

    Raises:
        PlanError: An argument is of another type.
    """

    field: str
    filter: Expr | Callable[[Any], object] | None = dataclass_field(default=None, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        for name in self.inputs:
            if not isinstance(name, str):
                raise PlanError(f"aggregate: {type(self).__name__} takes the name of a field, not {name!r}.")
        if self.filter is not None and not callable(self.filter) and not hasattr(self.filter, "alias"):
            raise PlanError(
                f"aggregate: filter is an expression of narwhals, such as nw.col('price') > 100, or a function, not "
                f"{self.filter!r}."
            )

    needed: ClassVar[str] = ""
    """The method that values must have."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """The fields of the records that it reads. Records where one is None are left out."""
        return (self.field,)

    @property
    @abstractmethod
    def empty(self) -> tuple[Any, ...]:
        """The accumulators of no values."""

    @abstractmethod
    def accumulators(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the types of the accumulators by name. ``values``: the types of the inputs, as far as known."""

    @abstractmethod
    def result_type(self, values: Mapping[str, Any]) -> Any:
        """Return the type of the result, without None."""

    @abstractmethod
    def add(self, before: Sequence[Any], value: Any) -> Sequence[Any]:
        """Return the accumulators with one more value, that of the input, or a tuple if there are several inputs."""

    @abstractmethod
    def merge(self, first: Sequence[Any], second: Sequence[Any]) -> Sequence[Any]:
        """Return the accumulators of the values of two, those of ``first`` before those of ``second``."""

    @abstractmethod
    def result(self, accumulators: Sequence[Any]) -> Any:
        """Return the result, None if there is none."""


@dataclass(frozen=True)
class Fold(Aggregate):
    """An aggregate that is its only accumulator. It is None, or 0 for a count, as long as there are no values."""

    how: ClassVar[str]
    """The name of the aggregation of columns, see ``ArrowKeyedState.aggregate``."""

    @property
    def empty(self) -> tuple[Any, ...]:
        return (None,)

    def accumulators(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"": self.result_type(values)}

    def result_type(self, values: Mapping[str, Any]) -> Any:
        return values.get(self.field, object)

    def first(self, value: Any) -> Any:
        """Return the aggregate of one value."""
        return value

    @abstractmethod
    def fold(self, before: Any, value: Any) -> Any:
        """Return the aggregate of the values before and one more. Neither is None."""

    def add(self, before: Sequence[Any], value: Any) -> Sequence[Any]:
        (old,) = before
        return (self.first(value) if old is None else self.fold(old, value),)

    def merge(self, first: Sequence[Any], second: Sequence[Any]) -> Sequence[Any]:
        (one,), (other,) = first, second
        return (other if one is None else one if other is None else self.merged(one, other),)

    def merged(self, first: Any, second: Any) -> Any:
        """Return the aggregate of the values of two aggregates. Neither is None."""
        return self.fold(first, second)

    def result(self, accumulators: Sequence[Any]) -> Any:
        return accumulators[0]


@dataclass(frozen=True)
class Sum(Fold):
    """The sum of a number field, see ``added``. Floats are added in the order of arrival."""

    how: ClassVar[str] = "sum"
    needed: ClassVar[str] = "__add__"

    def first(self, value: Any) -> Any:
        value = plain(value)
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
class Count(Fold):
    """The number of records, or of those whose ``field`` is not None."""

    field: str = ""
    how: ClassVar[str] = "sum"

    @property
    def inputs(self) -> tuple[str, ...]:
        return (self.field,) if self.field != "" else ()

    @property
    def empty(self) -> tuple[Any, ...]:
        return (0,)

    def result_type(self, values: Mapping[str, Any]) -> Any:
        return int

    def first(self, value: Any) -> int:
        return 1

    def fold(self, before: int, value: Any) -> int:
        return before + 1

    def merged(self, first: int, second: int) -> int:
        return first + second


@dataclass(frozen=True)
class Min(Fold):
    """The least value of a field. NaN is less than all numbers."""

    how: ClassVar[str] = "min"

    def fold(self, before: Any, value: Any) -> Any:
        try:
            return value if value < before or value != value else before
        except InvalidOperation:
            return before if is_nan(before) else value


@dataclass(frozen=True)
class Max(Fold):
    """The greatest value of a field. NaN is greater than all numbers."""

    how: ClassVar[str] = "max"

    def fold(self, before: Any, value: Any) -> Any:
        try:
            return value if value > before or value != value else before
        except InvalidOperation:
            return before if is_nan(before) else value


def is_nan(value: Any) -> bool:
    """Return whether a value is NaN. Decimals that are cannot be compared, signaling ones not even with themselves."""
    return value.is_nan() if isinstance(value, Decimal) else bool(value != value)


@dataclass(frozen=True)
class First(Fold):
    """The first value of a field, in the order of arrival."""

    how: ClassVar[str] = "first"

    def fold(self, before: Any, value: Any) -> Any:
        return before


@dataclass(frozen=True)
class Last(Fold):
    """The last value of a field, in the order of arrival."""

    how: ClassVar[str] = "last"

    def fold(self, before: Any, value: Any) -> Any:
        return value


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
