"""Watermarks with values of every type: their types reach the handlers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import assert_type

from dsv2 import (
    Collector,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputNonPartitionedContext,
    TwoOutputStreamProcessFunction,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
    on,
)
from dsv2.watermark import (
    BoolWatermarkDeclaration,
    FloatWatermarkBuilder,
    LongWatermark,
    LongWatermarkDeclaration,
    Quantile,
    SetWatermarkBuilder,
)


@dataclass(frozen=True)
class Model:
    name: str


FLOAT = new_builder("float").type_float().combine_function_max().build()
TOTAL = new_builder("total").type_long().combine_function_sum().build()
QUORUM = new_builder("quorum").type_bool().combine_function_at_least(2).build()
TEXT = new_builder("text").type_str().build()
MODEL = new_builder("model").type_of(Model).build()
CLOCK = new_builder("clock").type_vector().combine_function_min().build()
TAGS = new_builder("tags").type_set(str).combine_function_intersection().build()


def declarations() -> None:
    assert_type(new_builder("w").type_float().combine_function_quantile(0.5), FloatWatermarkBuilder)
    assert_type(new_builder("w").type_set(str).combine_function_union(), SetWatermarkBuilder[str])
    assert_type(FLOAT, WatermarkDeclaration[float])
    assert_type(TOTAL, LongWatermarkDeclaration)
    assert_type(QUORUM, BoolWatermarkDeclaration)
    assert_type(TEXT, WatermarkDeclaration[str])
    assert_type(MODEL, WatermarkDeclaration[Model])
    assert_type(CLOCK, WatermarkDeclaration[Mapping[str, int]])
    assert_type(TAGS, WatermarkDeclaration[Set[str]])
    assert_type(FLOAT.new_watermark(1), Watermark[float])
    assert_type(MODEL.new_watermark(Model("a")).value, Model)
    assert_type(CLOCK.new_watermark({"p": 1}).value["p"], int)
    assert_type(TAGS.new_watermark({"a"}).value, Set[str])
    new_builder("w").type_str().combine(max, samples=["a"])
    new_builder("w").type_long().combine(lambda a, b: a * b, neutral=1, samples=[1, 2])
    new_builder("w").type_float().deliver_when(lambda value, before: before is None or value > 2 * before)
    new_builder("w").type_long().combine_across_inputs(True, Quantile(0.5))


def narrowed(watermark: Watermark) -> None:
    if MODEL.matches(watermark):
        assert_type(watermark.value, Model)  # pyright: ignore  # Any: it keeps the declared type
    elif TAGS.matches(watermark):
        assert_type(watermark.value, Set[str])


class Handles(OneInputStreamProcessFunction[int, str]):
    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [FLOAT, TOTAL, MODEL, TAGS]

    def process_record(self, record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None:
        watermarks = ctx.non_partitioned_context.watermark_manager
        watermarks.emit_watermark(FLOAT.new_watermark(record))
        watermarks.emit_watermark(TAGS.new_watermark({"a"}))

    @on(FLOAT)
    def of_float(
        self, watermark: Watermark[float], output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        assert_type(watermark.value, float)
        return WatermarkHandlingResult.PEEK

    @on(TOTAL)
    def of_total(
        self, watermark: LongWatermark, output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        assert_type(watermark.value, int)
        return WatermarkHandlingResult.PEEK

    @on(MODEL)
    def of_model(
        self, watermark: Watermark[Model], output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        output.collect(watermark.value.name)
        return WatermarkHandlingResult.PEEK

    @on(TAGS)
    def of_any_type(
        self, watermark: Watermark, output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.POLL


class SameInteger(OneInputStreamProcessFunction[int, str]):
    """A handler may also be annotated with the general class."""

    def process_record(self, record: int, output: Collector[str], ctx: PartitionedContext[str]) -> None: ...

    @on(TOTAL)
    def total(
        self, watermark: Watermark[int], output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


class OfInputs(TwoInputNonBroadcastStreamProcessFunction[int, int, str]):
    def process_record_from_first_input(
        self, record: int, output: Collector[str], ctx: PartitionedContext[str]
    ) -> None: ...
    def process_record_from_second_input(
        self, record: int, output: Collector[str], ctx: PartitionedContext[str]
    ) -> None: ...

    @on(TEXT, input="first")
    @on(TEXT, input="second")
    def text(
        self, watermark: Watermark[str], output: Collector[str], ctx: NonPartitionedContext[str]
    ) -> WatermarkHandlingResult:
        output.collect(watermark.value)
        return WatermarkHandlingResult.PEEK


class Declares(OneInputStreamProcessFunction[int, int]):
    def declare_watermarks(self) -> Sequence[WatermarkDeclaration[float]]:
        return [FLOAT]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None: ...


class TwoOutputs(TwoOutputStreamProcessFunction[int, str, bytes]):
    @on(FLOAT)
    def of_float(
        self,
        watermark: Watermark[float],
        first_output: Collector[str],
        second_output: Collector[bytes],
        ctx: TwoOutputNonPartitionedContext[str, bytes],
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK
