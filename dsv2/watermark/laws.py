"""Checks the laws of a combination function of the program on samples, when its watermark is declared."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import product
from typing import Generic

from dsv2.base.type_variables import V
from dsv2.errors import WatermarkDeclarationError
from dsv2.watermark.combination_function import CustomCombination
from dsv2.watermark.value_type import ValueType

_ADVICE = (
    "There is no order between channels, so the result must not depend on it. Combine values that have an order of "
    "their own, or use combine_function_last()."
)


def checked_combination(
    identifier: str,
    value_type: ValueType[V],
    function: Callable[[V, V], V],
    neutral: V | None,
    samples: Collection[V],
    idempotent: bool | None,
) -> CustomCombination[V]:
    """Return the combination with ``function``, which must be pure, commutative and associative on ``samples``.

    Args:
        identifier: The watermark.
        value_type: The type of its values.
        function: The function.
        neutral: The value that stands for a channel without a value. None: there is none.
        samples: Values.
        idempotent: Whether ``function(x, x) == x``. None: the samples decide.

    Raises:
        WatermarkDeclarationError: A law does not hold, or there are no samples and ``idempotent`` is None.
    """
    checker = _Checker(identifier, value_type, function)
    if not callable(function):
        raise checker.error(f"requires a function of two values, not {function!r}")
    if not samples:
        if idempotent is None:
            raise checker.error(
                "needs samples=[...], values on which its laws are checked. Without samples, declare them: "
                "idempotent=True if the combination of a value with itself is that value, otherwise idempotent=False"
            )
        return CustomCombination(function, idempotent)
    values = [checker.value(sample, "The sample") for sample in samples]
    if neutral is not None:
        checker.check_neutral(checker.value(neutral, "The neutral value"), values)
    checker.check_pure_and_commutative(values)
    checker.check_associative(values)
    broken = next((value for value in values if checker.call(value, value) != value), None)
    if idempotent and broken is not None:
        raise checker.error(f"is not idempotent, although it is declared so: {checker.shown(broken, broken)}")
    if all(value == values[0] for value in values):
        raise checker.error("needs at least two different samples, or the laws hold for any function")
    return CustomCombination(function, broken is None if idempotent is None else idempotent)


class _Checker(Generic[V]):
    def __init__(self, identifier: str, value_type: ValueType[V], function: Callable[[V, V], V]) -> None:
        self._identifier = identifier
        self._type = value_type
        self._function = function

    def error(self, problem: str, advice: str = "") -> WatermarkDeclarationError:
        name = getattr(self._function, "__qualname__", repr(self._function))
        return WatermarkDeclarationError(
            f"Watermark {self._identifier!r}: combine({name}) {problem}.{f' {advice}' if advice else ''}"
        )

    def value(self, value: V, what: str) -> V:
        normalized = self._type.normalized(value)
        if not self._type.admits(normalized):
            raise self.error(f"is given another type. {what} {value!r} is not {self._type.requirement}")
        return normalized

    def call(self, one: V, other: V) -> V:
        try:
            return self.value(self._function(one, other), "The result")
        except WatermarkDeclarationError:
            raise
        except Exception as failed:
            problem = f"fails for {one!r} and {other!r} with {type(failed).__name__}: {failed}"
            raise self.error(problem) from failed

    def shown(self, one: V, other: V) -> str:
        return f"it returns {self.call(one, other)!r} for {one!r} and {other!r}"

    def check_neutral(self, neutral: V, values: list[V]) -> None:
        for value in values:
            if self.call(neutral, value) != value:
                raise self.error(f"has another neutral value than {neutral!r}: {self.shown(neutral, value)}")

    def check_pure_and_commutative(self, values: list[V]) -> None:
        for one, other in product(values, values):
            found = self.call(one, other)
            if found != self.call(one, other):
                raise self.error(f"is not pure: it returns different results for {one!r} and {other!r}")
            if found != self.call(other, one):
                raise self.error(f"is not commutative: {self.shown(one, other)}, {self.shown(other, one)}", _ADVICE)

    def check_associative(self, values: list[V]) -> None:
        for one, other, third in product(values, values, values):
            left, right = self.call(self.call(one, other), third), self.call(one, self.call(other, third))
            if left != right:
                raise self.error(
                    f"is not associative: for {one!r}, {other!r} and {third!r} it returns {left!r} or {right!r}, "
                    f"depending on which two it combines first",
                    _ADVICE,
                )
