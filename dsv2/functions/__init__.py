"""The process functions that users subclass (FLIP-409), one base class for each shape."""

from dsv2.functions.base import (
    CollectAll,
    FailedCallbackError,
    FailedRecordError,
    KeyedRunFunction,
    PaneFunction,
    Position,
    ProcessFunction,
    RunFunction,
    TickingFunction,
    WrappingFunction,
    no_output_until_end_of_input,
)
from dsv2.functions.builtin import CallableFunction, FilterFunction, FlatMapFunction, MapFunction
from dsv2.functions.columnar import ColumnarFunction
from dsv2.functions.one_input import OneInput, OneInputStreamProcessFunction
from dsv2.functions.returned import check_returned, refuse_returned
from dsv2.functions.timestamps import check_timestamp, check_window_end, greatest_timestamp
from dsv2.functions.two_input import (
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
)
from dsv2.functions.two_output import TwoOutputStreamProcessFunction

__all__ = (
    "CallableFunction",
    "CollectAll",
    "ColumnarFunction",
    "FailedCallbackError",
    "FailedRecordError",
    "FilterFunction",
    "FlatMapFunction",
    "KeyedRunFunction",
    "PaneFunction",
    "MapFunction",
    "OneInput",
    "OneInputStreamProcessFunction",
    "Position",
    "ProcessFunction",
    "RunFunction",
    "TickingFunction",
    "TwoInputBroadcastStreamProcessFunction",
    "TwoInputNonBroadcastStreamProcessFunction",
    "TwoOutputStreamProcessFunction",
    "WrappingFunction",
    "check_returned",
    "check_timestamp",
    "check_window_end",
    "greatest_timestamp",
    "no_output_until_end_of_input",
    "refuse_returned",
)
