"""Aggregates from which values can be taken back, because a row was updated or deleted.

The accumulator of an aggregate is plain data. It is empty again when all values have been taken back, in any order.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact
from fractions import Fraction
from functools import reduce
from typing import Any

from dsv2.aggregates import Aggregate, Count, CountDistinct, Max, Mean, Min, StdDev, Sum, Variance
from dsv2.aggregates.result_field import added, is_nan, plain
from dsv2.errors import PlanError, SchemaError
from dsv2.tables.versions import identity

_EXACT = Context(prec=5_000, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact])
"""Sums of floats and of their squares are exact, so that they can be taken back."""


class Retraction(ABC):
    """An aggregate with values that are added and taken back. A value that was taken back before counts as -1."""

    @property
    @abstractmethod
    def empty(self) -> Any:
        """The accumulator of no values."""

    @abstractmethod
    def changed(self, held: Any, value: Any, weight: int) -> Any:
        """Add ``weight``, 1 or -1, to the count of a value other than None. Return ``held`` or another accumulator."""

    @abstractmethod
    def result(self, held: Any) -> Any:
        """Return the aggregate, None if there are no values."""


class Counted(Retraction):
    """``Count``."""

    empty = 0

    def changed(self, held: int, value: Any, weight: int) -> int:
        return held + weight

    def result(self, held: int) -> int:
        return held


class Summed(Retraction):
    """``Sum``, ``Mean`` and ``Variance``: exact sums of the numbers and, if needed, of their squares.

    The accumulator has the counts of all values, of floats, of NaN and of infinite values, and the sums of the others.
    """

    empty = (0, 0, 0, 0, 0, 0, 0)

    def __init__(self, part: Sum | Mean | Variance) -> None:
        self._part = part
        self._has_squares = isinstance(part, Variance)

    def changed(self, held: tuple[Any, ...], value: Any, weight: int) -> tuple[Any, ...]:
        count, floats, nan, up, down, total, squares = held
        number = value if type(value) in (int, float) else plain(value)
        count += weight
        if isinstance(number, float):
            floats += weight
        if _is_finite(number):
            exact = Decimal(number) if isinstance(number, float) else number
            total = _exact_sum(total, exact, weight)
            if self._has_squares:
                square = exact * exact if isinstance(exact, int) else _EXACT.multiply(exact, exact)
                squares = _exact_sum(squares, square, weight)
        elif is_nan(number):
            nan += weight
        elif number > 0:
            up += weight
        else:
            down += weight
        return count, floats, nan, up, down, total, squares

    def result(self, held: tuple[Any, ...]) -> Any:
        count, floats, nan, up, down, total, squares = held
        if count <= 0:
            return None
        is_finite = not (nan or up or down)
        if not is_finite:
            total = math.nan if nan or (up and down) else math.inf if up else -math.inf
        if self._has_squares:
            return self._variance(count, Fraction(total), Fraction(squares)) if is_finite else math.nan
        if isinstance(self._part, Mean):
            return float(Fraction(total) / count) if is_finite else total
        if floats or isinstance(total, int):
            return float(total) if floats else added(total, 0)
        return Decimal(total)

    def _variance(self, count: int, total: Fraction, squares: Fraction) -> float | None:
        divisor = count if self._part.population else count - 1  # type: ignore[union-attr]
        if divisor < 1:
            return None
        variance = float((squares - total * total / count) / divisor)
        return math.sqrt(variance) if isinstance(self._part, StdDev) else variance


class Kept(Retraction):
    """``Min``, ``Max`` and ``CountDistinct``: the values with their counts, the extreme one, and their number."""

    def __init__(self, part: Min | Max | CountDistinct) -> None:
        self._fold = None if isinstance(part, CountDistinct) else part.fold

    @property
    def empty(self) -> list[Any]:
        return [{}, None, 0]

    def changed(self, held: list[Any], value: Any, weight: int) -> list[Any]:
        counts, extreme, number = held
        key = identity(value)
        kept, before = counts.get(key, (value, 0))
        after = before + weight
        if after == 0:
            del counts[key]
        else:
            counts[key] = kept, after
        if before <= 0 < after:
            held[2] = number + 1
            if self._fold is not None:
                held[1] = kept if number == 0 else self._fold(extreme, kept)
        elif after <= 0 < before:
            held[2] = number - 1
            if self._fold is not None and identity(extreme) == key:
                values = [value for value, count in counts.values() if count > 0]
                held[1] = reduce(self._fold, values) if values else None
        return held

    def result(self, held: list[Any]) -> Any:
        return held[2] if self._fold is None else held[1]


def retraction_of(name: str, part: Aggregate) -> Retraction:
    """Return how an aggregate is computed from rows that change.

    Args:
        name: The field of the result.
        part: The aggregate.

    Raises:
        PlanError: Values cannot be taken back from it.
    """
    match part:
        case Count():
            return Counted()
        case Sum() | Mean() | Variance():
            return Summed(part)
        case Min() | Max() | CountDistinct():
            return Kept(part)
    reason = (
        "it keeps hashes of the values. Use CountDistinct"
        if type(part).__name__ == "ApproxCountDistinct"
        else "it has no way back, or depends on the order of arrival. Use Count, CountDistinct, Sum, Mean, Min, Max, "
        "Variance or StdDev, or process the stream of changes() with a function"
    )
    raise PlanError(f"{name}={part} cannot follow updates and deletions, because {reason}.")


def _is_finite(number: Any) -> bool:
    if isinstance(number, int):
        return True
    return number.is_finite() if isinstance(number, Decimal) else math.isfinite(number)


def _exact_sum(total: Any, value: Any, weight: int) -> Any:
    try:
        if isinstance(total, int) and isinstance(value, int):
            return total + weight * value
        return _EXACT.add(total, value) if weight > 0 else _EXACT.subtract(total, value)
    except (TypeError, Inexact) as error:
        raise SchemaError(f"{value!r:.80} cannot be added to a sum that follows changes: {error}.") from error
