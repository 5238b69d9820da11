"""The mean, the variance and the standard deviation of a field."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

from dsv2.aggregates.result_field import Aggregate, Sum

_EXPONENTS = 400
"""The mean of decimals with larger exponents is infinite or 0 as a float."""
_SUM = Sum("")


@dataclass(frozen=True)
class Mean(Aggregate):
    """The mean of a number field: ``Sum`` divided by ``Count``, as a float."""

    needed: ClassVar[str] = "__float__"

    @property
    def empty(self) -> tuple[Any, ...]:
        return None, 0

    def accumulators(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"sum": values.get(self.field, object), "count": int}

    def result_type(self, values: Mapping[str, Any]) -> Any:
        return float

    def add(self, before: Sequence[Any], value: Any) -> Sequence[Any]:
        total, count = before
        return _SUM.first(value) if total is None else _SUM.fold(total, value), count + 1

    def merge(self, first: Sequence[Any], second: Sequence[Any]) -> Sequence[Any]:
        return (*_SUM.merge(first[:1], second[:1]), first[1] + second[1])

    def result(self, accumulators: Sequence[Any]) -> float | None:
        return self.of(*accumulators)

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
class Variance(Aggregate):
    """The variance of a number field, as a float: that of a sample, or of a whole population.

    A sample needs two values, a population one; with fewer the result is None. The numbers are added as floats, in the
    order of arrival, after the first one was subtracted from each. So large numbers that lie close to each other lose
    no digits. If the first one is far from all others, the relative error grows with their count: 1e-11 for 2,000.

    Args:
        field: As for ``Aggregate``.
        population: Whether the values are the whole population.
        filter: As for ``Aggregate``.
    """

    _: KW_ONLY
    population: bool = False
    needed: ClassVar[str] = "__float__"

    @property
    def empty(self) -> tuple[Any, ...]:
        return 0, None, None, None

    def accumulators(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"count": int, "first": float, "sum": float, "squares": float}

    def result_type(self, values: Mapping[str, Any]) -> Any:
        return float

    def add(self, before: Sequence[Any], value: Any) -> Sequence[Any]:
        count, first, total, squares = before
        number = float(value)
        if not count:
            difference = number - number  # NaN if it is not finite
            return 1, number, difference, difference
        difference = number - first
        return count + 1, first, total + difference, squares + difference * difference

    def merge(self, first: Sequence[Any], second: Sequence[Any]) -> Sequence[Any]:
        if not first[0] or not second[0]:
            return first if first[0] else second
        count, shift, total, squares = first
        other_count, other_shift, other_total, other_squares = second
        apart = other_shift - shift
        moved = other_squares + 2 * apart * other_total + other_count * apart * apart
        return count + other_count, shift, total + (other_total + other_count * apart), squares + moved

    def result(self, accumulators: Sequence[Any]) -> float | None:
        count, _, total, squares = accumulators
        divisor = count if self.population else count - 1
        if divisor < 1:
            return None
        found: float = (squares - total * total / count) / divisor
        return 0.0 if found < 0 else found


@dataclass(frozen=True)
class StdDev(Variance):
    """The standard deviation of a number field: the square root of ``Variance``."""

    def result(self, accumulators: Sequence[Any]) -> float | None:
        variance = super().result(accumulators)
        return None if variance is None else math.sqrt(variance)
