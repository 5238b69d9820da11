"""Mistakes within a function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsv2 import Collector, NonPartitionedContext, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction, TwoOutputStreamProcessFunction
from dsv2.watermark import Watermark, WatermarkHandlingResult, new_builder
from tests.typing.given import Given

NEWEST = new_builder("newest").type_long().build()
DONE = new_builder("done").type_bool().build()


def barriers() -> None:
    new_builder("day").type_bool().barrier()  # E: attr-defined
    new_builder("day").type_set(str).barrier()  # E: attr-defined
    new_builder("day").type_str().barrier(timeout=5)  # E: arg-type
    new_builder("day").type_str().barrier(when_exceeded="stop")  # E: arg-type
    new_builder("day").type_str().barrier().build().new_watermark(5)  # E: arg-type


class Mistaken(OneInputStreamProcessFunction[int, bytes]):
    def process_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
        output.collect(record)  # E: arg-type
        output.collect(b"x", 5)  # E: call-arg
        record.decode()  # E: attr-defined
        ctx.watermark_manager.emit_watermark(NEWEST.new_watermark(1))  # E: attr-defined
        ctx.non_partitioned_context.watermark_manager.emit_watermark(record)  # E: arg-type
        ctx.non_partitioned_context.watermark_manager.emit_watermark(NEWEST)  # E: arg-type
        ctx.non_partitioned_context.apply_to_all_partitions(lambda output, ctx: output.collect(record))  # E: arg-type

    def end_input(self, ctx: NonPartitionedContext[bytes]) -> None:
        print(ctx.state_manager.current_key)  # E: attr-defined

    def on_watermark(
        self, watermark: Watermark, output: Collector[bytes], ctx: NonPartitionedContext[bytes]
    ) -> WatermarkHandlingResult:
        output.collect(watermark)  # E: arg-type
        return True  # E: return-value


class OtherRecord(OneInputStreamProcessFunction[int, bytes]):
    def process_record(self, record: str, output: Collector[bytes], ctx: Any) -> None: ...  # E: override


class OtherRecords(OneInputStreamProcessFunction[int, bytes]):
    def process_record(self, record: int, output: Collector[bytes], ctx: Any) -> None: ...

    def process_records(self, records: Sequence[str], output: Collector[bytes], ctx: Any) -> None: ...  # E: override


class NoAnswer(OneInputStreamProcessFunction[int, bytes]):
    def process_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None: ...
    def on_watermark(  # E: override
        self, watermark: Watermark, output: Collector[bytes], ctx: NonPartitionedContext[bytes]
    ) -> None: ...


class Declares(OneInputStreamProcessFunction[int, bytes]):
    def process_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None: ...
    def declare_watermarks(self) -> list[str]:  # E: override
        return ["newest"]


class Forgotten(TwoOutputStreamProcessFunction[int, bytes, str]):
    pass


def abstract(g: Given) -> None:
    g.non_keyed.process(Forgotten())  # E: abstract


def watermark_values() -> None:
    NEWEST.new_watermark("1")  # E: arg-type
    NEWEST.new_watermark(1.5)  # E: arg-type
    DONE.new_watermark(2)  # E: arg-type
    new_builder("w").build()  # E: attr-defined
    new_builder("w").type_bool().combine_function_max()  # E: attr-defined
    new_builder("w").type_long().combine_function_and()  # E: attr-defined
    new_builder("w").type_long().default_handling_strategy("FORWARD")  # E: arg-type


def metrics(ctx: NonPartitionedContext[bytes]) -> None:
    ctx.metric_group.histogram("sizes", ["1"])  # E: list-item
    ctx.metric_group.histogram("sizes").update("1")  # E: arg-type
    ctx.metric_group.gauge("size", lambda: "1")  # E: arg-type, return-value
