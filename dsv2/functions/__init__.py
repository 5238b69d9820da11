"""The process functions that users subclass (FLIP-409), one base class for each shape."""

from dsv2.functions.base import (
    BatchFunction,
    EmitBatch,
    FailedCallbackError,
    FailedRecordError,
    KeyedBatchFunction,
    PaneFunction,
    Position,
    ProcessFunction,
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
    "BatchFunction",
    "CallableFunction",
    "ColumnarFunction",
    "EmitBatch",
    "FailedCallbackError",
    "FailedRecordError",
    "FilterFunction",
    "FlatMapFunction",
    "KeyedBatchFunction",
    "PaneFunction",
    "MapFunction",
    "OneInput",
    "OneInputStreamProcessFunction",
    "Position",
    "ProcessFunction",
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
