"""The process function that runs a two-input window function."""

from __future__ import annotations

from dsv2.base.type_variables import IN1, IN2, OUT
from dsv2.extension.event_time import TwoInputNonBroadcastEventTimeStreamProcessFunction
from dsv2.extension.window.callbacks import Shape
from dsv2.extension.window.contents import Contents, pairs_of_lists
from dsv2.extension.window.current_window import TwoInputCurrentWindow
from dsv2.extension.window.functions import TwoInputNonBroadcastWindowStreamProcessFunction
from dsv2.extension.window.window_operator import Windowed
from dsv2.model.context import Collector, NonPartitionedContext, PartitionedContext
from dsv2.spi import PartitionAccess
from dsv2.watermark import Watermark, WatermarkHandlingResult


class TwoInputWindowed(
    Windowed[TwoInputNonBroadcastWindowStreamProcessFunction[IN1, IN2, OUT]],
    TwoInputNonBroadcastEventTimeStreamProcessFunction[IN1, IN2, OUT],
):
    """The process function that ``window`` creates for a two-input window function."""

    shape = Shape(
        TwoInputNonBroadcastWindowStreamProcessFunction,
        ("on_record1", "on_record2"),
        ("on_late_record1", "on_late_record2"),
    )

    def process_record_from_first_input(
        self, record: IN1, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        self._windows_of(ctx, output).add(record, 0)

    def process_record_from_second_input(
        self, record: IN2, output: Collector[OUT], ctx: PartitionedContext[OUT]
    ) -> None:
        self._windows_of(ctx, output).add(record, 1)

    def end_first_input(self, ctx: NonPartitionedContext[OUT]) -> None:
        self.function.end_first_input(ctx)

    def end_second_input(self, ctx: NonPartitionedContext[OUT]) -> None:
        self.function.end_second_input(ctx)

    def on_watermark_from_first_input(
        self, watermark: Watermark, output: Collector[OUT], ctx: NonPartitionedContext[OUT]
    ) -> WatermarkHandlingResult:
        return self.function.on_watermark_from_first_input(watermark, output, ctx)

    def on_watermark_from_second_input(
        self, watermark: Watermark, output: Collector[OUT], ctx: NonPartitionedContext[OUT]
    ) -> WatermarkHandlingResult:
        return self.function.on_watermark_from_second_input(watermark, output, ctx)

    def _new_contents(self) -> Contents:
        return pairs_of_lists()

    def _new_window(self, contents: Contents, key: PartitionAccess) -> TwoInputCurrentWindow:
        return TwoInputCurrentWindow(contents, self.function.use_window_states(), key)
