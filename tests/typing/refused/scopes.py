"""Mistakes with the scopes of watermarks."""

from __future__ import annotations

from datetime import timedelta

from dsv2 import Collector, NonPartitionedContext, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction, on
from dsv2.watermark import KeyedWatermark, Watermark, WatermarkHandlingResult, new_builder

PER_KEY = new_builder("per key").type_long().per_key(int).build()

new_builder("a").type_long().deliver_to(3)  # E: arg-type
new_builder("a").type_long().deliver_to_group(["g"])  # E: arg-type
new_builder("a").type_long().expire_after(3)  # E: arg-type
new_builder("a").type_long().per_key(list)  # E: type-var
new_builder("a").type_long().per_key(int).expire_after(timedelta(seconds=1))  # E: attr-defined
PER_KEY.new_watermark(1)  # E: call-arg
PER_KEY.new_watermark(1, key="a")  # E: arg-type
PER_KEY.new_watermark("a", key=1)  # E: arg-type


class Mistaken(OneInputStreamProcessFunction[int, str]):
    def process_record(self, record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None:
        manager = ctx.non_partitioned_context.watermark_manager
        manager.emit_watermark(PER_KEY.new_watermark(1, key=1), output="third")  # E: arg-type
        manager.emit_watermark(PER_KEY.new_watermark(1, key=1), output=2)  # E: arg-type

    @on(PER_KEY)  # E: arg-type
    def other_value(
        self, watermark: KeyedWatermark[bool, str], output: Collector[str], ctx: PartitionedContext[str]
    ) -> None: ...

    @on(PER_KEY)  # E: arg-type
    def with_result(
        self, watermark: KeyedWatermark[int, int], output: Collector[str], ctx: PartitionedContext[str]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK

    def on_key_watermark(
        self,
        watermark: Watermark,
        output: Collector[str],
        ctx: NonPartitionedContext[str],  # E: override
    ) -> None: ...
