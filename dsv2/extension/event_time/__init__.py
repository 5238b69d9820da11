"""Event time: watermark generators, functions with event timers, and the watermarks they use (FLIP-499)."""

from dsv2.extension.event_time.extension import EventTimeExtension
from dsv2.extension.event_time.functions import (
    AsyncOneInputEventTimeStreamProcessFunction,
    EventTimeManager,
    EventTimeProcessFunction,
    OneInputEventTimeStreamProcessFunction,
    TwoInputBroadcastEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
    TwoOutputEventTimeStreamProcessFunction,
)
from dsv2.extension.event_time.generator import (
    EventTimeExtractor,
    EventTimeWatermarkGeneratorBuilder,
    WatermarkStrategyBuilder,
)

__all__ = (
    "AsyncOneInputEventTimeStreamProcessFunction",
    "EventTimeExtension",
    "EventTimeExtractor",
    "EventTimeManager",
    "EventTimeProcessFunction",
    "EventTimeWatermarkGeneratorBuilder",
    "OneInputEventTimeStreamProcessFunction",
    "TwoInputBroadcastEventTimeStreamProcessFunction",
    "TwoInputNonBroadcastEventTimeStreamProcessFunction",
    "TwoOutputEventTimeStreamProcessFunction",
    "WatermarkStrategyBuilder",
)
