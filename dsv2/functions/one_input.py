"""Functions with one input and one output (Flink ``OneInputStreamProcessFunction``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeAlias

from dsv2.base.type_variables import IN, OUT, IN_contra, OUT_co
from dsv2.model.context import Collector, NonPartitionedContext, PartitionedContext
from dsv2.spi import AsyncFunction, ColumnarFunction, ProcessFunction
from dsv2.watermark import KeyedWatermark, Watermark, WatermarkHandlingResult


class OneInputStreamProcessFunction(ProcessFunction, ABC, Generic[IN_contra, OUT_co]):
    """A function that reads one stream and emits one stream."""

    def open(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once per subtask before the first record. May emit watermarks."""

    @abstractmethod
    def process_record(self, record: IN_contra, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called for every record."""

    def process_records(
        self, records: Sequence[IN_contra], output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Optional. Called instead of ``process_record`` with consecutive records of one key, if it is overridden.

        It is faster for functions that read and write state, because they do so once for all ``records``. Its effects
        must be those of ``process_record`` for each of them, in their order: the runtime chooses which one it calls. It
        calls ``process_record`` for records with timestamps, under an error policy, on streams without keys, and to
        find the record that caused a failure. Do not define it if the function derives watermarks from its records: the
        records of other keys that arrived in between are processed before or after ``records``.

        Args:
            records: Records of the current key, at least one, in their order. No watermark arrived between them, but
                records of other keys may have.
            output: The collector for emitted records.
            ctx: The context, bound to the key.
        """
        for record in records:
            self.process_record(record, output, ctx)

    def end_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once when every channel of the input has ended. May emit."""

    def on_processing_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called when a processing-time timer fires, for the key of the timer. Only in keyed functions.

        Args:
            timestamp: The timestamp of the timer in ms. The clock has reached it.
            output: The collector for emitted records.
            ctx: The context, bound to the key.
        """

    def on_watermark(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark, including those with identifiers that this function does not declare.

        Records collected here are emitted before the watermark is forwarded.

        Args:
            watermark: The watermark, combined over the channels of the input.
            output: The collector for emitted records.
            ctx: The context, without a partition.

        Returns:
            PEEK (default) leaves forwarding to the strategy of the declaration. POLL consumes the watermark.
        """
        return WatermarkHandlingResult.PEEK

    def on_key_watermark(
        self, watermark: KeyedWatermark, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]
    ) -> None:
        """Called for every combined per-key watermark, in the partition of its key. Only in keyed functions.

        The key may have no records yet. The watermark is not forwarded: the function may emit one itself.

        Args:
            watermark: The watermark, combined over the channels of the input that have sent one for this key.
            output: The collector for emitted records.
            ctx: The context, bound to the key.
        """


class PassingFunction(Generic[IN_contra]):
    """The second base class of functions that emit the records that they receive. ``process`` keeps their type.

    So the type of the records need not be known where the function is created.
    """


OneInput: TypeAlias = OneInputStreamProcessFunction[IN, OUT] | ColumnarFunction[IN, OUT] | AsyncFunction[IN, OUT]
"""A function with one input and one output: processes single records, batches of columns, or records in flight."""
