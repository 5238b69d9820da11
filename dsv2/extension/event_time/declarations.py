"""The watermarks of event time, which are those of every job (Flink ``EventTimeExtension``, FLIP-326)."""

from __future__ import annotations

from typing import Final

from dsv2.watermark import BoolWatermarkDeclaration, LongWatermarkDeclaration, new_builder
from dsv2.watermark.event_time import EVENT_TIME as EVENT_TIME_IDENTIFIER
from dsv2.watermark.event_time import IDLE_STATUS as IDLE_STATUS_IDENTIFIER
from dsv2.watermark.event_time import USE_PROCESSING_TIME as USE_PROCESSING_TIME_IDENTIFIER

__all__ = ("EVENT_TIME", "IDLE_STATUS", "USE_PROCESSING_TIME")

EVENT_TIME: Final[LongWatermarkDeclaration] = (
    new_builder(EVENT_TIME_IDENTIFIER)
    .type_long()
    .combine_function_min()
    .combine_wait_for_all_channels(True)
    .default_handling_strategy_forward()
    .build()
)
IDLE_STATUS: Final[BoolWatermarkDeclaration] = (
    new_builder(IDLE_STATUS_IDENTIFIER)
    .type_bool()
    .combine_function_and()
    .combine_wait_for_all_channels(True)
    .default_handling_strategy_forward()
    .build()
)
USE_PROCESSING_TIME: Final[BoolWatermarkDeclaration] = (
    new_builder(USE_PROCESSING_TIME_IDENTIFIER)
    .type_bool()
    .combine_function_and()
    .combine_wait_for_all_channels(True)
    .default_handling_strategy_forward()
    .build()
)
