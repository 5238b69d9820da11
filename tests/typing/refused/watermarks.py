"""Mistakes with the values of watermarks."""

from __future__ import annotations

from dataclasses import dataclass

from dsv2 import (
    Collector,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    Watermark,
    WatermarkHandlingResult,
    new_builder,
    on,
)
from dsv2.watermark import LongWatermark


@dataclass(frozen=True)
class Model:
    name: str


FLOAT = new_builder("float").type_float().build()
TOTAL = new_builder("total").type_long().build()
MODEL = new_builder("model").type_of(Model).build()
TAGS = new_builder("tags").type_set(str).build()
CLOCK = new_builder("clock").type_vector().build()


def values() -> None:
    FLOAT.new_watermark("1")  # E: arg-type
    MODEL.new_watermark("a")  # E: arg-type
    TAGS.new_watermark({1})  # E: arg-type
    CLOCK.new_watermark({"p": "1"})  # E: dict-item
    TAGS.new_watermark({"a"}).value.add("b")  # E: attr-defined
    CLOCK.new_watermark({"p": 1}).value["q"] = 2  # E: index
    FLOAT.new_watermark(1.0).value = 2.0  # E: misc


def combinations() -> None:
    new_builder("w").type_float().combine_function_and()  # E: attr-defined
    new_builder("w").type_bool().combine_function_sum()  # E: attr-defined
    new_builder("w").type_str().combine_function_sum()  # E: attr-defined
    new_builder("w").type_vector().combine_function_union()  # E: attr-defined
    new_builder("w").type_set(str).combine_function_min()  # E: attr-defined
    new_builder("w").type_long().combine(lambda a, b: str(a), samples=[1])  # E: arg-type, return-value
    new_builder("w").type_long().combine(max, samples=["a"])  # E: list-item
    new_builder("w").type_str().deliver_when(lambda value, before: value > 1)  # E: operator


class Handles(OneInputStreamProcessFunction[int, str]):
    def process_record(self, record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None: ...

    @on(FLOAT)  # E: arg-type
    def of_another_type(
        self, watermark: Watermark[str], output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK

    @on(MODEL)  # E: arg-type
    def of_another_class(
        self, watermark: LongWatermark, output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK

    @on(TOTAL)  # E: arg-type
    def without_result(
        self, watermark: LongWatermark, output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> None: ...

    @on(TOTAL, input="third")  # E: call-overload, untyped-decorator
    def of_no_input(
        self, watermark: LongWatermark, output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK

    @on(MODEL)
    def misused(
        self, watermark: Watermark[Model], output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        output.collect(watermark.value)  # E: arg-type
        return WatermarkHandlingResult.PEEK
