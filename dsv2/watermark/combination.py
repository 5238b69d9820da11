"""Combinations of values, and what they do when a channel becomes inactive (idle, or ended).

A channel without a value is neutral, because these functions only get the values that were sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import ceil, fsum, inf
from operator import and_, itemgetter, or_
from typing import Any, Generic, cast

from dsv2.base.type_variables import V
from dsv2.errors import JobError
from dsv2.watermark.combination_function import (
    AtLeastChannels,
    CombinationFunction,
    CustomCombination,
    Quantile,
    family_of,
    is_idempotent,
)
from dsv2.watermark.value_type import ValueType
from dsv2.watermark.vector_clock import VectorClock


@dataclass(frozen=True, slots=True)
class Combination(Generic[V]):
    """A combination of the values of several channels.

    Attributes:
        family: The name of the function without its parameters.
        combine: Combines one or more values, in the order of their arrival. Returns None if there are not enough of
            them.
        only_advances: Whether the result of fewer channels is only delivered if it is greater than the last one. For
            sets that is a superset, for vectors one with no smaller entry. Otherwise it is delivered if it differs.
        is_idempotent: Whether the combination of copies of a value is that value.
    """

    family: str
    combine: Callable[[Sequence[V]], V | None]
    only_advances: bool
    is_idempotent: bool

    @property
    def is_extremum(self) -> bool:
        """True if the result is the least or the greatest value."""
        return self.family in ("min", "max", "and", "or")

    @property
    def is_greatest(self) -> bool:
        """True if an extremum is the greatest value."""
        return self.family in ("max", "or")

    @property
    def takes_last(self) -> bool:
        """True if the result is the value that arrived last."""
        return self.family == "last"

    def follows(self, combined: V, last: V | None) -> bool:
        """Return whether ``combined``, the result of the channels that are left, is delivered after ``last``."""
        if last is None or not self.only_advances:
            return combined != last
        return bool(cast(Any, combined) > last)


def new_combination(identifier: str, value_type: ValueType[V], function: CombinationFunction) -> Combination[V]:
    """Return the combination of values of ``value_type`` with ``function``, which accepts them."""
    family = family_of(function)
    combine: Callable[[Sequence[Any]], Any]
    if isinstance(function, Quantile):
        combine = partial(_quantile, function.quantile)
    elif isinstance(function, AtLeastChannels):
        combine = partial(_at_least, function.channels)
    elif isinstance(function, CustomCombination):
        combine = _Custom(identifier, value_type, function)
    elif value_type.kind is VectorClock and family in _OF_VECTORS:
        combine = _OF_VECTORS[family]
    elif family == "sum":
        combine = _Sum(identifier, value_type)
    else:
        combine = _SIMPLE[family]
    return Combination(family, combine, family in _ONLY_ADVANCE, is_idempotent(function))


_ONLY_ADVANCE = ("min", "max", "and", "or", "union", "intersection")


_SIMPLE: dict[str, Callable[[Sequence[Any]], Any]] = {
    "min": min,
    "max": max,
    "and": all,
    "or": any,
    "count": len,
    "last": itemgetter(-1),
    "union": partial(reduce, or_),
    "intersection": partial(reduce, and_),
}
_OF_VECTORS: dict[str, Callable[[Sequence[VectorClock]], VectorClock]] = {
    "min": partial(VectorClock.merged, better=min),
    "max": partial(VectorClock.merged, better=max),
}


def _quantile(quantile: float, values: Sequence[Any]) -> Any:
    return sorted(values)[max(0, ceil(quantile * len(values)) - 1)]


def _at_least(channels: int, values: Sequence[Any]) -> Any:
    return sorted(values)[-channels] if len(values) >= channels else None


class _Sum(Generic[V]):
    """Adds numbers."""

    def __init__(self, identifier: str, value_type: ValueType[V]) -> None:
        self._identifier = identifier
        self._type = value_type
        self._add: Callable[[Sequence[Any]], Any] = fsum if value_type.kind is float else sum

    def __call__(self, values: Sequence[Any]) -> Any:
        try:
            total = self._add(values)
        except OverflowError:  # of fsum
            total = inf
        if not self._type.admits(total):
            raise JobError(
                f"Watermark {self._identifier!r}: the sum of the channels is not {self._type.requirement}. They have "
                f"sent {', '.join(map(repr, values))}. Emit smaller values, such as differences."
            )
        return total


class _Custom(Generic[V]):
    """Combines values with a function of the program."""

    def __init__(self, identifier: str, value_type: ValueType[V], custom: CustomCombination[V]) -> None:
        self._identifier = identifier
        self._type = value_type
        self._custom = custom

    def __call__(self, values: Sequence[V]) -> V:
        return reduce(self._of_two, values)

    def _of_two(self, one: V, other: V) -> V:
        called = f"Watermark {self._identifier!r}: {self._custom.value} of {one!r} and {other!r}"
        try:
            combined = self._type.normalized(self._custom.function(one, other))
        except Exception as error:
            raise JobError(f"{called} failed. {type(error).__name__}: {error}") from error
        if not self._type.admits(combined):
            raise JobError(f"{called} returned {combined!r}. It must return {self._type.requirement}.")
        return combined
