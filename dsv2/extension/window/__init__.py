"""Tumbling, sliding, cumulating, session, global and count windows over event time or processing time (FLIP-501)."""

from dsv2.extension.window.contexts import OneInputWindowContext, TwoInputWindowContext, WindowContext
from dsv2.extension.window.evictors import CountEvictor, TimedRecord, TimeEvictor, WindowEvictor
from dsv2.extension.window.functions import (
    OneInputWindowStreamProcessFunction,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    TwoOutputWindowStreamProcessFunction,
    WindowProcessFunction,
)
from dsv2.extension.window.strategy import TimestampCombiner, TimeType, WindowAssigner, WindowStrategy
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
    "CountEvictor",
    "CountTrigger",
    "DeltaTrigger",
    "EventTimeTrigger",
    "OneInputWindowContext",
    "OneInputWindowStreamProcessFunction",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "TimeEvictor",
    "TimeType",
    "TimedRecord",
    "TimestampCombiner",
    "TriggerContext",
    "TriggerResult",
    "TwoInputNonBroadcastWindowStreamProcessFunction",
    "TwoInputWindowContext",
    "TwoOutputWindowStreamProcessFunction",
    "WindowAssigner",
    "WindowContext",
    "WindowEvictor",
    "WindowProcessFunction",
    "WindowStrategy",
    "WindowTrigger",
)
