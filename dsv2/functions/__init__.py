"""The base classes of process functions, one for each combination of inputs and outputs (FLIP-409)."""

from dsv2.functions.asynchronous import AsyncBatchProcessFunction, AsyncOneInputStreamProcessFunction
from dsv2.functions.builtin import CallableFunction, FilterFunction, FlatMapFunction, MapFunction
from dsv2.functions.handlers import FunctionInput, on
from dsv2.functions.one_input import OneInput, OneInputStreamProcessFunction
from dsv2.functions.operators import DeduplicateFunction, LimitFunction, SampleFunction, UnionFunction
from dsv2.functions.two_input import (
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
)
from dsv2.functions.two_output import TwoOutputStreamProcessFunction
from dsv2.spi.process_function import ProcessFunction, no_output_until_end_of_input

__all__ = (
    "AsyncBatchProcessFunction",
    "AsyncOneInputStreamProcessFunction",
    "CallableFunction",
    "DeduplicateFunction",
    "FilterFunction",
    "FlatMapFunction",
    "FunctionInput",
    "LimitFunction",
    "MapFunction",
    "OneInput",
    "OneInputStreamProcessFunction",
    "ProcessFunction",
    "SampleFunction",
    "TwoInputBroadcastStreamProcessFunction",
    "TwoInputNonBroadcastStreamProcessFunction",
    "TwoOutputStreamProcessFunction",
    "UnionFunction",
    "no_output_until_end_of_input",
    "on",
)
