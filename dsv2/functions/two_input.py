"""Functions with two inputs: both with the same partitioning, or the second one broadcast.

(Flink ``TwoInputNonBroadcastStreamProcessFunction`` and ``TwoInputBroadcastStreamProcessFunction``.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic

from dsv2.base.type_variables import IN1_contra, IN2_contra, OUT_co
from dsv2.model.context import Collector, NonPartitionedContext, PartitionedContext
from dsv2.spi import ProcessFunction
from dsv2.watermark import KeyedWatermark, Watermark, WatermarkHandlingResult


class TwoInputNonBroadcastStreamProcessFunction(ProcessFunction, ABC, Generic[IN1_contra, IN2_contra, OUT_co]):
    """A function that reads two streams with the same partitioning and emits one stream."""

    def open(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once per subtask before the first record. May emit watermarks."""

    @abstractmethod
    def process_record_from_first_input(
        self, record: IN1_contra, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Called for every record of the stream that ``connect_and_process`` was called on."""

    def process_records_from_first_input(
        self, records: Sequence[IN1_contra], output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Optional. Called with consecutive records of one key: see ``OneInputStreamProcessFunction``."""
        for record in records:
            self.process_record_from_first_input(record, output, ctx)

    @abstractmethod
    def process_record_from_second_input(
        self, record: IN2_contra, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Called for every record of the other stream."""

    def process_records_from_second_input(
        self, records: Sequence[IN2_contra], output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Optional. Called with consecutive records of one key: see ``OneInputStreamProcessFunction``."""
        for record in records:
            self.process_record_from_second_input(record, output, ctx)

    def end_first_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once when the first input has ended. May emit."""

    def end_second_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once when the second input has ended. May emit."""

    def on_processing_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called when a processing-time timer fires, for the key of the timer. ``timestamp`` is in ms. Keyed only."""

    def on_watermark_from_first_input(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark of the first input. See ``on_watermark`` of the one-input function."""
        return WatermarkHandlingResult.PEEK

    def on_key_watermark_from_first_input(
        self, watermark: KeyedWatermark, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Called for every combined per-key watermark of the first input. See the one-input function."""

    def on_watermark_from_second_input(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark of the second input."""
        return WatermarkHandlingResult.PEEK

    def on_key_watermark_from_second_input(
        self, watermark: KeyedWatermark, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Called for every combined per-key watermark of the second input."""


class TwoInputBroadcastStreamProcessFunction(ProcessFunction, ABC, Generic[IN1_contra, IN2_contra, OUT_co]):
    """A function that reads a partitioned stream and a broadcast stream, and emits one stream.

    Every subtask receives every record of the broadcast stream.
    """

    def open(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once per subtask before the first record. May emit watermarks."""

    @abstractmethod
    def process_record_from_non_broadcast_input(
        self, record: IN1_contra, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Called for every record of the partitioned stream."""

    def process_records_from_non_broadcast_input(
        self, records: Sequence[IN1_contra], output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Optional. Called with consecutive records of one key: see ``OneInputStreamProcessFunction``."""
        for record in records:
            self.process_record_from_non_broadcast_input(record, output, ctx)

    @abstractmethod
    def process_record_from_broadcast_input(self, record: IN2_contra, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called for every broadcast record. It can only emit through ``ctx.apply_to_all_partitions``."""

    def end_non_broadcast_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once when the partitioned input has ended. May emit."""

    def end_broadcast_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once when the broadcast input has ended. May emit."""

    def on_processing_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called when a processing-time timer fires, for the key of the timer. ``timestamp`` is in ms. Keyed only."""

    def on_watermark_from_non_broadcast_input(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark of the partitioned input."""
        return WatermarkHandlingResult.PEEK

    def on_key_watermark_from_non_broadcast_input(
        self, watermark: KeyedWatermark, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Called for every combined per-key watermark of the partitioned input."""

    def on_watermark_from_broadcast_input(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark of the broadcast input."""
        return WatermarkHandlingResult.PEEK

    def on_key_watermark_from_broadcast_input(
        self, watermark: KeyedWatermark, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Called for every combined per-key watermark of the broadcast input. In the subtask that has the key."""
