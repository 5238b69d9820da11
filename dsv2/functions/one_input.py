"""Functions with one input and one output (Flink ``OneInputStreamProcessFunction``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeAlias, TypeVar

from dsv2.context import Collector, NonPartitionedContext, PartitionedContext
from dsv2.spi import ColumnarFunction, ProcessFunction
from dsv2.watermark import Watermark, WatermarkHandlingResult

__all__ = ("OneInput", "OneInputStreamProcessFunction")

IN_contra = TypeVar("IN_contra", contravariant=True)
OUT_co = TypeVar("OUT_co", covariant=True)
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class OneInputStreamProcessFunction(ProcessFunction, ABC, Generic[IN_contra, OUT_co]):
    """Reads one stream, writes one stream."""

    def open(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once per subtask, before any record; may emit watermarks."""

    @abstractmethod
    def process_record(self, record: IN_contra, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called for every record."""

    def end_input(self, ctx: NonPartitionedContext[OUT_co]) -> None:
        """Called once, when every channel of the input has ended; may still emit."""

    def on_processing_timer(self, timestamp: int, output: Collector[OUT_co], ctx: PartitionedContext[OUT_co]) -> None:
        """Called for the key of a processing-time timer once the clock has reached ``timestamp`` (ms). Keyed only."""

    def on_watermark(
        self, watermark: Watermark, output: Collector[OUT_co], ctx: NonPartitionedContext[OUT_co]
    ) -> WatermarkHandlingResult:
        """Called for every combined watermark, also of identifiers that this function does not know.

        Records collected here go out before the watermark is forwarded. PEEK (the default) leaves forwarding
        to the declaration's strategy; POLL keeps the watermark here.
        """
        return WatermarkHandlingResult.PEEK


OneInput: TypeAlias = OneInputStreamProcessFunction[IN, OUT] | ColumnarFunction[IN, OUT]
"""What may process one stream and give one: record by record, or many at once."""
