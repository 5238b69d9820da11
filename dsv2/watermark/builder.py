"""Builders of watermark declarations (Flink ``WatermarkDeclarations``)."""

from __future__ import annotations

from datetime import timedelta
from typing import Generic, Literal, Self, TypeVar

from dsv2.arguments import as_choice
from dsv2.errors import WatermarkDeclarationError
from dsv2.watermark.barrier import BarrierWait, WhenExceeded
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
    """Start a watermark declaration.

    Args:
        identifier: Case-sensitive and unique within a job.

    Raises:
        WatermarkDeclarationError: ``identifier`` is empty, or has the prefix reserved for event time.

    Examples:
        >>> new_builder("newest").type_long().combine_function_max().build().identifier
        'newest'
    """
    return WatermarkDeclarationBuilder(identifier)


class WatermarkDeclarations:
    """Starts watermark declarations, under Flink's name. For state see ``StateDeclarations``."""

    new_builder = staticmethod(new_builder)


class WatermarkDeclarationBuilder:
    """The first step of a declaration: the type of the values."""

    def __init__(self, identifier: str) -> None:
        if not isinstance(identifier, str) or not identifier:
            raise WatermarkDeclarationError(f"A watermark identifier must be a non-empty string, not {identifier!r}.")
        if identifier.startswith(RESERVED):
            raise WatermarkDeclarationError(
                f"Identifiers that begin with {RESERVED} are reserved for event time. Choose an identifier other than "
                f"{identifier!r}, or use the declarations of EventTimeExtension."
            )
        self._identifier = identifier

    def type_long(self) -> LongWatermarkBuilder:
        """Values are 64-bit integers. They are combined with MIN by default."""
        return LongWatermarkBuilder(self._identifier, NumericWatermarkCombinationFunction.MIN)

    def type_bool(self) -> BoolWatermarkBuilder:
        """Values are booleans. They are combined with AND by default."""
        return BoolWatermarkBuilder(self._identifier, BoolWatermarkCombinationFunction.AND)


class _TypedBuilder(Generic[F]):
    def __init__(self, identifier: str, function: F) -> None:
        self._identifier = identifier
        self._function: F = function
        self._wait_for_all_channels = False
        self._aligned = False
        self._across_inputs = False
        self._strategy = WatermarkHandlingStrategy.FORWARD
        self._barrier: BarrierWait | None = None

    def combine_wait_for_all_channels(self, wait: bool) -> Self:
        """Set whether receivers wait until every channel has sent a value. Default: False."""
        self._wait_for_all_channels = _as_bool(wait, "wait")
        return self

    def aligned(self, aligned: bool = True) -> Self:
        """Set whether the watermark blocks a channel until all channels have sent theirs. Default: False.

        Requires ``combine_wait_for_all_channels(True)``. (In Flink this is internal: ``Alignable``.)
        """
        self._aligned = _as_bool(aligned, "aligned")
        return self

    def barrier(
        self,
        *,
        timeout: timedelta | None = None,
        max_records: int | None = None,
        when_exceeded: WhenExceeded | Literal["fail", "proceed"] = WhenExceeded.FAIL,
    ) -> Self:
        """Make the watermark a barrier, and its value an id. Ids must increase in each subtask that sends them.

        A barrier with an id states that all records before it belong to the parts up to that id. It blocks its channel
        until each channel of each input has sent that id or a greater one. Then the function receives it once (with two
        inputs in the callback of the first one), and it is forwarded once.

        Args:
            timeout: For how long a channel may be blocked, in processing time. None (default): forever.
            max_records: How many records each subtask may hold behind the barrier. None (default): any number.
            when_exceeded: What happens beyond either limit. ``"fail"`` (default): the job fails. ``"proceed"``: the
                barrier is delivered without the channels that are missing.

        Raises:
            WatermarkDeclarationError: An argument is invalid, or ``when_exceeded`` has no limit.
        """
        self._barrier = BarrierWait.of(timeout, max_records, when_exceeded)
        self._aligned = self._wait_for_all_channels = True
        return self

    def combine_across_inputs(self, combine: bool) -> Self:
        """Set whether a two-input function forwards one value combined over both inputs. Default: False, as Flink."""
        self._across_inputs = _as_bool(combine, "combine")
        return self

    def default_handling_strategy(self, strategy: WatermarkHandlingStrategy | Literal["forward", "ignore"]) -> Self:
        """Set what the framework does after a function returned PEEK. Default: FORWARD."""
        self._strategy = as_choice(WatermarkHandlingStrategy, strategy, "strategy", error=WatermarkDeclarationError)
        return self

    def default_handling_strategy_forward(self) -> Self:
        """Forward the watermark unless the function returns POLL."""
        return self.default_handling_strategy(WatermarkHandlingStrategy.FORWARD)

    def default_handling_strategy_ignore(self) -> Self:
        """Do not forward the watermark."""
        return self.default_handling_strategy(WatermarkHandlingStrategy.IGNORE)

    def _policy(self) -> WatermarkCombinationPolicy:
        return WatermarkCombinationPolicy(
            self._function, self._wait_for_all_channels, self._aligned, self._across_inputs, self._barrier
        )


class LongWatermarkBuilder(_TypedBuilder[NumericWatermarkCombinationFunction]):
    """The second step of a declaration with integer values."""

    def combine_function_min(self) -> Self:
        """Combine to the smallest value of all channels (the default)."""
        self._function = NumericWatermarkCombinationFunction.MIN
        return self

    def combine_function_max(self) -> Self:
        """Combine to the greatest value of all channels."""
        self._function = NumericWatermarkCombinationFunction.MAX
        return self

    def build(self) -> LongWatermarkDeclaration:
        """Build the declaration.

        Raises:
            WatermarkDeclarationError: The watermark is aligned but does not wait for all channels.
        """
        return LongWatermarkDeclaration(self._identifier, self._policy(), self._strategy)


class BoolWatermarkBuilder(_TypedBuilder[BoolWatermarkCombinationFunction]):
    """The second step of a declaration with boolean values."""

    def combine_function_and(self) -> Self:
        """Combine to True if the values of all channels are True (the default)."""
        self._function = BoolWatermarkCombinationFunction.AND
        return self

    def combine_function_or(self) -> Self:
        """Combine to True if the value of any channel is True."""
        self._function = BoolWatermarkCombinationFunction.OR
        return self

    def build(self) -> BoolWatermarkDeclaration:
        """Build the declaration.

        Raises:
            WatermarkDeclarationError: The watermark is aligned but does not wait for all channels.
        """
        return BoolWatermarkDeclaration(self._identifier, self._policy(), self._strategy)


def _as_bool(value: bool, parameter: str) -> bool:
    if not isinstance(value, bool):
        raise WatermarkDeclarationError(f"{parameter} must be True or False, not {value!r}.")
    return value
