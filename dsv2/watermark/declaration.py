"""Watermark declarations: what a signal is called, how it is combined and whether receivers let it go on.

Functions return declarations from ``declare_watermarks``; they hold for the whole job (FLIP-467).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from dsv2.errors import WatermarkDeclarationError
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

    MIN = "MIN"
    MAX = "MAX"


class BoolWatermarkCombinationFunction(Enum):
    """How the values of several channels become one bool."""

    AND = "AND"
    OR = "OR"


class WatermarkHandlingStrategy(Enum):
    """What the framework does with a watermark after a function answered PEEK."""

    FORWARD = "FORWARD"
    IGNORE = "IGNORE"


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

    def new_watermark(self, value: int) -> LongWatermark:
        """A watermark of this declaration; ``value`` must fit 64 bits, signed."""
        if not isinstance(value, int) or isinstance(value, bool) or not LONG_MIN <= value <= LONG_MAX:
            raise ValueError(f"Watermark {self.identifier!r}: {value!r} is not a signed 64-bit integer.")
        return LongWatermark(value, self.identifier)


@dataclass(frozen=True, slots=True)
class BoolWatermarkDeclaration:
    """Declares a signal of booleans (Flink ``BoolWatermarkDeclaration``)."""

    identifier: str
    combination_policy: WatermarkCombinationPolicy
    default_handling_strategy: WatermarkHandlingStrategy

    def new_watermark(self, value: bool) -> BoolWatermark:
        """A watermark of this declaration."""
        return BoolWatermark(value, self.identifier)


WatermarkDeclaration: TypeAlias = LongWatermarkDeclaration | BoolWatermarkDeclaration
