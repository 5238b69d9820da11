"""The watermark declarations of event time (Flink ``EventTimeExtension``, FLIP-326)."""

from __future__ import annotations

from typing import Final

from dsv2.watermark import (
    BoolWatermarkCombinationFunction,
    BoolWatermarkDeclaration,
    LongWatermarkDeclaration,
    NumericWatermarkCombinationFunction,
    WatermarkCombinationPolicy,
    WatermarkHandlingStrategy,
)
from dsv2.watermark.event_time import EVENT_TIME as EVENT_TIME_IDENTIFIER
from dsv2.watermark.event_time import IDLE_STATUS as IDLE_STATUS_IDENTIFIER
from dsv2.watermark.event_time import USE_PROCESSING_TIME as USE_PROCESSING_TIME_IDENTIFIER

# Not with new_builder, which reserves these identifiers.
_MIN = WatermarkCombinationPolicy(NumericWatermarkCombinationFunction.MIN, combine_wait_for_all_channels=True)
_AND = WatermarkCombinationPolicy(BoolWatermarkCombinationFunction.AND, combine_wait_for_all_channels=True)
_FORWARD = WatermarkHandlingStrategy.FORWARD

EVENT_TIME: Final = LongWatermarkDeclaration(EVENT_TIME_IDENTIFIER, _MIN, _FORWARD)
IDLE_STATUS: Final = BoolWatermarkDeclaration(IDLE_STATUS_IDENTIFIER, _AND, _FORWARD)
USE_PROCESSING_TIME: Final = BoolWatermarkDeclaration(USE_PROCESSING_TIME_IDENTIFIER, _AND, _FORWARD)
