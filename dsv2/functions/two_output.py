"""Functions with one input and two outputs (Flink ``TwoOutputStreamProcessFunction``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic

from dsv2.base.type_variables import IN_contra, OUT1_co, OUT2_co
from dsv2.model.context import Collector, TwoOutputNonPartitionedContext, TwoOutputPartitionedContext
from dsv2.spi import ProcessFunction
from dsv2.watermark import KeyedWatermark, Watermark, WatermarkHandlingResult


class TwoOutputStreamProcessFunction(ProcessFunction, ABC, Generic[IN_contra, OUT1_co, OUT2_co]):
    """A function that reads one stream and emits two. Watermarks go to both outputs, unless it names one."""

    def open(self, ctx: TwoOutputNonPartitionedContext[OUT1_co, OUT2_co]) -> None:
        """Called once per subtask before the first record. May emit watermarks."""

    @abstractmethod
    def process_record(
        self,
        record: IN_contra,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputPartitionedContext[OUT1_co, OUT2_co],
    ) -> None:
        """Called for every record."""

    def process_records(
        self,
        records: Sequence[IN_contra],
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputPartitionedContext[OUT1_co, OUT2_co],
    ) -> None:
        """Optional. Called with consecutive records of one key: see ``OneInputStreamProcessFunction``."""
        for record in records:
            self.process_record(record, first_output, second_output, ctx)

    def end_input(self, ctx: TwoOutputNonPartitionedContext[OUT1_co, OUT2_co]) -> None:
        """Called once when every channel of the input has ended. May emit."""

    def on_processing_timer(
        self,
        timestamp: int,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputPartitionedContext[OUT1_co, OUT2_co],
    ) -> None:
        """Called when a processing-time timer fires, for the key of the timer. ``timestamp`` is in ms. Keyed only."""

    def on_watermark(
        self,
        watermark: Watermark,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputNonPartitionedContext[OUT1_co, OUT2_co],
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark. With PEEK the framework forwards it to both outputs."""
        return WatermarkHandlingResult.PEEK

    def on_key_watermark(
        self,
        watermark: KeyedWatermark,
        first_output: Collector[OUT1_co],
        second_output: Collector[OUT2_co],
        ctx: TwoOutputPartitionedContext[OUT1_co, OUT2_co],
    ) -> None:
        """Called for every combined per-key watermark. See ``OneInputStreamProcessFunction``."""
