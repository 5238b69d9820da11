"""Tumbling, sliding, session, global and count windows over event time or processing time (FLIP-501)."""

from dsv2.extension.window.builtin import aggregate, reduce, window, with_late_output
from dsv2.extension.window.contexts import OneInputWindowContext, TwoInputWindowContext, WindowContext
from dsv2.extension.window.functions import (
    OneInputWindowStreamProcessFunction,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    TwoOutputWindowStreamProcessFunction,
    WindowProcessFunction,
)
from dsv2.extension.window.strategy import TimeType, WindowStrategy

__all__ = (
    "OneInputWindowContext",
    "OneInputWindowStreamProcessFunction",
    "TimeType",
    "TwoInputNonBroadcastWindowStreamProcessFunction",
    "TwoInputWindowContext",
    "TwoOutputWindowStreamProcessFunction",
    "WindowContext",
    "WindowProcessFunction",
    "WindowStrategy",
    "aggregate",
    "reduce",
    "window",
    "with_late_output",
)
