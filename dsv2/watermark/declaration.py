"""Watermark declarations: what a signal is called, how it is combined and whether receivers let it go on.

Functions return declarations from ``declare_watermarks``; they hold for the whole job (FLIP-467).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from dsv2.arguments import is_whole_number
from dsv2.errors import InvalidWatermarkError, WatermarkDeclarationError
from dsv2.watermark.watermark import LONG_MAX, LONG_MIN, BoolWatermark, LongWatermark

__all__ = (
    "BoolWatermarkCombinationFunction",
    "BoolWatermarkDeclaration",
    "LongWatermarkDeclaration",
    "NumericWatermarkCombinationFunction",
    "WatermarkCombinationFunction",
    "WatermarkCombinationPolicy",
    "WatermarkDeclaration",
    "WatermarkHandlingStrategy",
)


class NumericWatermarkCombinationFunction(Enum):
    """How the values of several channels become one long."""

    MIN = "min"
    MAX = "max"


class BoolWatermarkCombinationFunction(Enum):
    """How the values of several channels become one bool."""

    AND = "and"
    OR = "or"


class WatermarkHandlingStrategy(Enum):
    """What the framework does with a watermark after a function answered PEEK."""

    FORWARD = "forward"
    IGNORE = "ignore"


WatermarkCombinationFunction: TypeAlias = NumericWatermarkCombinationFunction | BoolWatermarkCombinationFunction


@dataclass(frozen=True, slots=True)
class WatermarkCombinationPolicy:
    """How a receiver combines what its channels sent (Flink ``WatermarkCombinationPolicy``).

    ``combine_wait_for_all_channels``: deliver nothing until every live channel has sent a value.
    ``aligned``: hold back what follows on a channel until every live channel has sent its watermark.
    ``combine_across_inputs``: a two-input function forwards one value combined over both inputs
    instead of each input's value separately (which is what Flink does).
    """

    combination_function: WatermarkCombinationFunction
    combine_wait_for_all_channels: bool = False
    aligned: bool = False
    combine_across_inputs: bool = False

    def __post_init__(self) -> None:
        if self.aligned and not self.combine_wait_for_all_channels:
            raise WatermarkDeclarationError(
                "An aligned watermark must wait for all channels: "
                "call combine_wait_for_all_channels(True) on the builder as well."
            )


@dataclass(frozen=True, slots=True)
class LongWatermarkDeclaration:
    """Declares a signal of 64-bit integers (Flink ``LongWatermarkDeclaration``)."""

    identifier: str
    combination_policy: WatermarkCombinationPolicy
    default_handling_strategy: WatermarkHandlingStrategy

    def __post_init__(self) -> None:
        _check(self, NumericWatermarkCombinationFunction)

    def new_watermark(self, value: int) -> LongWatermark:
        """A watermark of this declaration. Raises ``InvalidWatermarkError`` as ``check_value``."""
        self.check_value(value)
        return LongWatermark(value, self.identifier)

    def check_value(self, value: object) -> None:
        """Raise ``InvalidWatermarkError`` unless ``value`` is a signed 64-bit integer. A bool is not."""
        if not is_whole_number(value) or not LONG_MIN <= value <= LONG_MAX:
            raise InvalidWatermarkError(
                f"Watermark {self.identifier!r} was declared with type_long(): value must be a signed 64-bit integer, "
                f"not {value!r}."
            )


@dataclass(frozen=True, slots=True)
class BoolWatermarkDeclaration:
    """Declares a signal of booleans (Flink ``BoolWatermarkDeclaration``)."""

    identifier: str
    combination_policy: WatermarkCombinationPolicy
    default_handling_strategy: WatermarkHandlingStrategy

    def __post_init__(self) -> None:
        _check(self, BoolWatermarkCombinationFunction)

    def new_watermark(self, value: bool) -> BoolWatermark:
        """A watermark of this declaration. Raises ``InvalidWatermarkError`` as ``check_value``."""
        self.check_value(value)
        return BoolWatermark(value, self.identifier)

    def check_value(self, value: object) -> None:
        """Raise ``InvalidWatermarkError`` unless ``value`` is a bool."""
        if not isinstance(value, bool):
            raise InvalidWatermarkError(
                f"Watermark {self.identifier!r} was declared with type_bool(): value must be True or False, "
                f"not {value!r}."
            )


def _check(declaration: LongWatermarkDeclaration | BoolWatermarkDeclaration, functions: type[Enum]) -> None:
    policy, strategy = declaration.combination_policy, declaration.default_handling_strategy
    for part, kind in ((policy.combination_function, functions), (strategy, WatermarkHandlingStrategy)):
        if not isinstance(part, kind):
            raise WatermarkDeclarationError(
                f"Watermark {declaration.identifier!r}: a {type(declaration).__name__} takes a {kind.__name__}, "
                f"not {part!r}."
            )


WatermarkDeclaration: TypeAlias = LongWatermarkDeclaration | BoolWatermarkDeclaration
