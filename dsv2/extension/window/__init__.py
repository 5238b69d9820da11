"""Tumbling, sliding, cumulating, session, global and count windows over event time or processing time (FLIP-501)."""

from dsv2.extension.window.contexts import OneInputWindowContext, TwoInputWindowContext, WindowContext
from dsv2.extension.window.functions import (
    OneInputWindowStreamProcessFunction,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    TwoOutputWindowStreamProcessFunction,
    WindowProcessFunction,
)
from dsv2.extension.window.strategy import TimestampCombiner, TimeType, WindowStrategy
from dsv2.extension.window.triggers import (
    CountTrigger,
    DeltaTrigger,
    EventTimeTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
    TriggerContext,
    TriggerResult,
    WindowTrigger,
)

__all__ = (
    "CountTrigger",
    "DeltaTrigger",
    "EventTimeTrigger",
    "OneInputWindowContext",
    "OneInputWindowStreamProcessFunction",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "TimeType",
    "TimestampCombiner",
    "TriggerContext",
    "TriggerResult",
    "TwoInputNonBroadcastWindowStreamProcessFunction",
    "TwoInputWindowContext",
    "TwoOutputWindowStreamProcessFunction",
    "WindowContext",
    "WindowProcessFunction",
    "WindowStrategy",
    "WindowTrigger",
)
