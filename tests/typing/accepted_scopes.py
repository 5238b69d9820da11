"""Watermarks with a scope: their types are inferred."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from dsv2 import Collector, OutputTag, PartitionedContext, TwoOutputPartitionedContext
from dsv2.functions import OneInputStreamProcessFunction, TwoOutputStreamProcessFunction, on
from dsv2.model import MainOutput
from dsv2.watermark import (
    BoolWatermarkBuilder,
    KeyedWatermark,
    KeyedWatermarkDeclaration,
    LongWatermark,
    LongWatermarkDeclaration,
    WatermarkDeclaration,
    new_builder,
)

ADDRESSED = new_builder("addressed").type_long().deliver_to("a", "b").deliver_to_group("g").build()
EXPIRING = new_builder("expiring").type_long().expire_after(timedelta(seconds=1)).combine_function_max().build()
PER_KEY = new_builder("per key").type_bool().per_key(int).build()
BY_NAME = new_builder("by name").type_set(str).deliver_to("a").per_key(tuple[str, int]).build()
SIDE = OutputTag("side", int)

assert_type(ADDRESSED, LongWatermarkDeclaration)
assert_type(EXPIRING.new_watermark(1), LongWatermark)
assert_type(new_builder("x").type_bool().deliver_to("a"), BoolWatermarkBuilder)
assert_type(PER_KEY, KeyedWatermarkDeclaration[bool, int])
assert_type(PER_KEY.new_watermark(True, key=7), KeyedWatermark[bool, int])
assert_type(PER_KEY.new_watermark(True, key=7).key, int)
assert_type(BY_NAME.new_watermark({"x"}, key=("a", 1)).key, tuple[str, int])


class Emit(TwoOutputStreamProcessFunction[int, int, str]):
    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [ADDRESSED, EXPIRING, PER_KEY, BY_NAME]

    def process_record(
        self,
        record: int,
        first_output: Collector[int],
        second_output: Collector[str],
        ctx: TwoOutputPartitionedContext[int, str],
    ) -> None:
        manager = ctx.non_partitioned_context.watermark_manager
        manager.emit_watermark(ADDRESSED.new_watermark(1), output="second")
        manager.emit_watermark(ADDRESSED.new_watermark(1), output=MainOutput.FIRST)
        manager.emit_watermark(PER_KEY.new_watermark(True, key=record), output=SIDE)


class Handle(OneInputStreamProcessFunction[int, str]):
    def process_record(self, record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None: ...

    @on(PER_KEY)
    def complete(
        self, watermark: KeyedWatermark[bool, int], output: Collector[str], ctx: PartitionedContext[str]
    ) -> None:
        assert_type(watermark.value, bool)
        assert_type(watermark.key, int)

    def on_key_watermark(
        self, watermark: KeyedWatermark, output: Collector[str], ctx: PartitionedContext[str]
    ) -> None: ...
