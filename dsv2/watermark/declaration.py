"""Watermark declarations: the identifier of a watermark, how it is combined and whether it is forwarded (FLIP-467).

Functions return declarations from ``declare_watermarks``. A declaration applies to the whole job.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from dsv2.arguments import is_whole_number
from dsv2.errors import InvalidWatermarkError, WatermarkDeclarationError
from dsv2.watermark.barrier import BarrierWait
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
    """How the integer values of several channels are combined."""

    MIN = "min"
    MAX = "max"


class BoolWatermarkCombinationFunction(Enum):
    """How the boolean values of several channels are combined."""

    AND = "and"
    OR = "or"


class WatermarkHandlingStrategy(Enum):
    """What the framework does with a watermark after a function returned PEEK."""

    FORWARD = "forward"
    IGNORE = "ignore"


WatermarkCombinationFunction: TypeAlias = NumericWatermarkCombinationFunction | BoolWatermarkCombinationFunction


@dataclass(frozen=True, slots=True)
class WatermarkCombinationPolicy:
    """How a receiver combines the values of its channels.

    Attributes:
        combination_function: The function that combines the values.
        combine_wait_for_all_channels: Deliver nothing until every active channel has sent a value.
        aligned: Block a channel after its watermark until every active channel has sent its watermark.
        combine_across_inputs: A two-input function forwards one value combined over both inputs. False (default)
            forwards the value of each input separately, as Flink does.
        barrier: It is a barrier, and waits so long. Barriers are aligned. None (default): it is not a barrier.

    (Flink ``WatermarkCombinationPolicy``.)
    """

    combination_function: WatermarkCombinationFunction
    combine_wait_for_all_channels: bool = False
    aligned: bool = False
    combine_across_inputs: bool = False
    barrier: BarrierWait | None = None

    def __post_init__(self) -> None:
        if self.aligned and not self.combine_wait_for_all_channels:
            raise WatermarkDeclarationError(
                "An aligned watermark must wait for all channels: "
                "call combine_wait_for_all_channels(True) on the builder as well."
            )


@dataclass(frozen=True, slots=True)
class LongWatermarkDeclaration:
    """Declares a watermark with 64-bit integer values (Flink ``LongWatermarkDeclaration``)."""

    identifier: str
    combination_policy: WatermarkCombinationPolicy
    default_handling_strategy: WatermarkHandlingStrategy

    def __post_init__(self) -> None:
        _check(self, NumericWatermarkCombinationFunction)

    def new_watermark(self, value: int) -> LongWatermark:
        """Create a watermark.

        Args:
            value: A signed 64-bit integer.

        Raises:
            InvalidWatermarkError: ``value`` is not such an int, or is a bool.
        """
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
    """Declares a watermark with boolean values (Flink ``BoolWatermarkDeclaration``)."""

    identifier: str
    combination_policy: WatermarkCombinationPolicy
    default_handling_strategy: WatermarkHandlingStrategy

    def __post_init__(self) -> None:
        _check(self, BoolWatermarkCombinationFunction)

    def new_watermark(self, value: bool) -> BoolWatermark:
        """Create a watermark.

        Args:
            value: True or False.

        Raises:
            InvalidWatermarkError: ``value`` is not a bool.
        """
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
                f"Watermark {declaration.identifier!r}: a {type(declaration).__name__} requires a {kind.__name__}, "
                f"not {part!r}."
            )


WatermarkDeclaration: TypeAlias = LongWatermarkDeclaration | BoolWatermarkDeclaration
