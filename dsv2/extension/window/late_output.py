"""The process function that runs a one-input window function and emits late records to a second output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dsv2.context import Collector, TwoOutputNonPartitionedContext, TwoOutputPartitionedContext
from dsv2.extension.event_time import TwoOutputEventTimeStreamProcessFunction
from dsv2.extension.window.callbacks import Callbacks, IncrementalCallbacks
from dsv2.extension.window.contents import Contents
from dsv2.extension.window.current_window import CurrentWindow
from dsv2.extension.window.functions import OneInputWindowStreamProcessFunction
from dsv2.extension.window.incremental import IncrementalFunction
from dsv2.extension.window.one_input import OneInputWindowed, contents_of
from dsv2.extension.window.strategy import TimeType
from dsv2.extension.window.timerless import TimerlessContext
from dsv2.extension.window.windowed import OneInputRecordsWindowed
from dsv2.watermark import Watermark, WatermarkHandlingResult

__all__ = ("LateOutputWindowed",)

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class _FirstOutput:
    """A ``NonPartitionedContext`` that only shows the first output."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self.job_info = ctx.job_info
        self.task_info = ctx.task_info
        self.metric_group = ctx.metric_group
        self.watermark_manager = ctx.watermark_manager
        self.state_manager = ctx.state_manager

    def apply_to_all_partitions(self, function: Callable[..., None]) -> None:
        """Call ``function`` once for every partition."""
        self._ctx.apply_to_all_partitions(lambda first, second, ctx: function(first, TimerlessContext(ctx, self)))


class LateOutputWindowed(
    OneInputRecordsWindowed[OneInputWindowStreamProcessFunction[IN, OUT]],
    TwoOutputEventTimeStreamProcessFunction[IN, OUT, IN],
):
    """The process function that ``with_late_output`` creates."""

    shape = OneInputWindowed.shape

    def open(self, ctx: TwoOutputNonPartitionedContext[OUT, IN]) -> None:
        self.function.open(_FirstOutput(ctx))

    def process_record(
        self,
        record: IN,
        first_output: Collector[OUT],
        second_output: Collector[IN],
        ctx: TwoOutputPartitionedContext[OUT, IN],
    ) -> None:
        self._windows_of(ctx, first_output, second_output).add(record, 0)

    def on_event_timer(
        self,
        timestamp: int,
        first_output: Collector[OUT],
        second_output: Collector[IN],
        ctx: TwoOutputPartitionedContext[OUT, IN],
    ) -> None:
        self._windows_of(ctx, first_output, second_output).on_timer(timestamp, TimeType.EVENT)

    def on_processing_timer(
        self,
        timestamp: int,
        first_output: Collector[OUT],
        second_output: Collector[IN],
        ctx: TwoOutputPartitionedContext[OUT, IN],
    ) -> None:
        self._windows_of(ctx, first_output, second_output).on_timer(timestamp, TimeType.PROCESSING)

    def end_input(self, ctx: TwoOutputNonPartitionedContext[OUT, IN]) -> None:
        self.function.end_input(_FirstOutput(ctx))

    def on_watermark(
        self,
        watermark: Watermark,
        first_output: Collector[OUT],
        second_output: Collector[IN],
        ctx: TwoOutputNonPartitionedContext[OUT, IN],
    ) -> WatermarkHandlingResult:
        return self.function.on_watermark(watermark, first_output, _FirstOutput(ctx))

    def _new_contents(self) -> Contents:
        return contents_of(self.function)

    def _new_callbacks(self, ctx: Any, outputs: Sequence[Any], window: CurrentWindow) -> Callbacks:
        timerless = TimerlessContext(ctx, _FirstOutput(ctx.non_partitioned_context))
        kind = IncrementalCallbacks if isinstance(self.function, IncrementalFunction) else Callbacks
        return kind(self.function, self.shape, outputs[:1], timerless, window, outputs[1])
