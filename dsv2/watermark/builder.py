"""Builders of watermark declarations (Flink ``WatermarkDeclarations``)."""

from __future__ import annotations

from typing import Generic, Literal, Self, TypeVar

from dsv2.arguments import as_choice
from dsv2.errors import WatermarkDeclarationError
from dsv2.watermark.declaration import (
    BoolWatermarkCombinationFunction,
    BoolWatermarkDeclaration,
    LongWatermarkDeclaration,
    NumericWatermarkCombinationFunction,
    WatermarkCombinationPolicy,
    WatermarkHandlingStrategy,
)
from dsv2.watermark.event_time import RESERVED

__all__ = (
    "BoolWatermarkBuilder",
    "LongWatermarkBuilder",
    "WatermarkDeclarationBuilder",
    "WatermarkDeclarations",
    "new_builder",
)

F = TypeVar("F", NumericWatermarkCombinationFunction, BoolWatermarkCombinationFunction)


def new_builder(identifier: str) -> WatermarkDeclarationBuilder:
    """Start a declaration. ``identifier`` is case-sensitive and unique within a job.

    One that cannot be used raises ``WatermarkDeclarationError``.

    >>> new_builder("newest").type_long().combine_function_max().build().identifier
    'newest'
    """
    return WatermarkDeclarationBuilder(identifier)


class WatermarkDeclarations:
    """Starts declarations, under Flink's name; ``StateDeclarations`` is its counterpart for state."""

    new_builder = staticmethod(new_builder)


class WatermarkDeclarationBuilder:
    """First step of a declaration: choose the type of the values."""

    def __init__(self, identifier: str) -> None:
        if not isinstance(identifier, str) or not identifier:
            raise WatermarkDeclarationError(f"A watermark identifier is a non-empty string, not {identifier!r}.")
        if identifier.startswith(RESERVED):
            raise WatermarkDeclarationError(
                f"Identifiers that begin with {RESERVED} are those of event time: choose another one than "
                f"{identifier!r}, or take the declarations of EventTimeExtension."
            )
        self._identifier = identifier

    def type_long(self) -> LongWatermarkBuilder:
        """Values are 64-bit integers; combined by MIN unless said otherwise."""
        return LongWatermarkBuilder(self._identifier, NumericWatermarkCombinationFunction.MIN)

    def type_bool(self) -> BoolWatermarkBuilder:
        """Values are booleans; combined by AND unless said otherwise."""
        return BoolWatermarkBuilder(self._identifier, BoolWatermarkCombinationFunction.AND)


class _TypedBuilder(Generic[F]):
    def __init__(self, identifier: str, function: F) -> None:
        self._identifier = identifier
        self._function: F = function
        self._wait_for_all_channels = False
        self._aligned = False
        self._across_inputs = False
        self._strategy = WatermarkHandlingStrategy.FORWARD

    def combine_wait_for_all_channels(self, wait: bool) -> Self:
        """Whether receivers deliver nothing until every channel has sent a value (default: False)."""
        self._wait_for_all_channels = _as_bool(wait, "wait")
        return self

    def aligned(self, aligned: bool = True) -> Self:
        """Whether this watermark holds a channel back until all channels have sent theirs (default: False).

        Needs ``combine_wait_for_all_channels(True)``. Flink has this internally only (``Alignable``).
        """
        self._aligned = _as_bool(aligned, "aligned")
        return self

    def combine_across_inputs(self, combine: bool) -> Self:
        """Whether a two-input function forwards one value combined over both inputs (default: False, as Flink)."""
        self._across_inputs = _as_bool(combine, "combine")
        return self

    def default_handling_strategy(self, strategy: WatermarkHandlingStrategy | Literal["forward", "ignore"]) -> Self:
        """What happens after a receiver's function answered PEEK (default: FORWARD)."""
        self._strategy = as_choice(WatermarkHandlingStrategy, strategy, "strategy", error=WatermarkDeclarationError)
        return self

    def default_handling_strategy_forward(self) -> Self:
        """Receivers let the watermark go on unless their function answers POLL."""
        return self.default_handling_strategy(WatermarkHandlingStrategy.FORWARD)

    def default_handling_strategy_ignore(self) -> Self:
        """Receivers never let the watermark go on by themselves."""
        return self.default_handling_strategy(WatermarkHandlingStrategy.IGNORE)

    def _policy(self) -> WatermarkCombinationPolicy:
        return WatermarkCombinationPolicy(
            self._function, self._wait_for_all_channels, self._aligned, self._across_inputs
        )


class LongWatermarkBuilder(_TypedBuilder[NumericWatermarkCombinationFunction]):
    """Second step for integers."""

    def combine_function_min(self) -> Self:
        """The smallest value of all channels (the default)."""
        self._function = NumericWatermarkCombinationFunction.MIN
        return self

    def combine_function_max(self) -> Self:
        """The greatest value of all channels."""
        self._function = NumericWatermarkCombinationFunction.MAX
        return self

    def build(self) -> LongWatermarkDeclaration:
        """The finished declaration.

        Raises ``WatermarkDeclarationError`` for an aligned watermark that does not wait for all channels.
        """
        return LongWatermarkDeclaration(self._identifier, self._policy(), self._strategy)


class BoolWatermarkBuilder(_TypedBuilder[BoolWatermarkCombinationFunction]):
    """Second step for booleans."""

    def combine_function_and(self) -> Self:
        """True when every channel says true (the default)."""
        self._function = BoolWatermarkCombinationFunction.AND
        return self

    def combine_function_or(self) -> Self:
        """True when any channel says true."""
        self._function = BoolWatermarkCombinationFunction.OR
        return self

    def build(self) -> BoolWatermarkDeclaration:
        """The finished declaration.

        Raises ``WatermarkDeclarationError`` for an aligned watermark that does not wait for all channels.
        """
        return BoolWatermarkDeclaration(self._identifier, self._policy(), self._strategy)


def _as_bool(value: bool, parameter: str) -> bool:
    if not isinstance(value, bool):
        raise WatermarkDeclarationError(f"{parameter} must be True or False, not {value!r}.")
    return value
