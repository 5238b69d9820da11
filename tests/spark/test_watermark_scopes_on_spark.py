"""Watermarks whose values expire on Spark: a job without data notices it, and what is kept survives micro-batches."""

from __future__ import annotations

import threading
from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import (
    Collector,
    ExecutionEnvironment,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    Trigger,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from dsv2.sinks import ForeachBatchSink
from dsv2.testing import Pause, TestSource
from dsv2.watermark import KeyedWatermark
from runtime_spark import SparkRuntime, StateLayout
from tests.durations import LONG

QUIET = Pause(timedelta(minutes=10))  # longer than any test: no data, and no end
LOAD = new_builder("load").type_long().combine_function_max().expire_after(timedelta(milliseconds=1500))
OF_ALL, OF_KEY = LOAD.build(), new_builder("of key").type_long().combine_function_max()
OF_USER = OF_KEY.expire_after(timedelta(milliseconds=1500)).per_key(int).build()


class Emit(OneInputStreamProcessFunction[int, int]):
    """Emits each record as a watermark: of all, and of user 7."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [OF_ALL, OF_USER]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        manager = ctx.non_partitioned_context.watermark_manager
        manager.emit_watermark(OF_ALL.new_watermark(record))
        manager.emit_watermark(OF_USER.new_watermark(record, key=7))


class Watch(OneInputStreamProcessFunction[int, Any]):
    """Emits what it hears."""

    def process_record(self, record: int, output: Collector[Any], ctx: PartitionedContext[Any]) -> None: ...

    def on_watermark(
        self, watermark: Watermark, output: Collector[Any], ctx: NonPartitionedContext[Any]
    ) -> WatermarkHandlingResult:
        output.collect(("all", watermark.value))
        return WatermarkHandlingResult.PEEK

    def on_key_watermark(self, watermark: KeyedWatermark, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect((ctx.state_manager.current_key, watermark.value))


@pytest.mark.parametrize("layout", [StateLayout.BLOB, StateLayout.MAP])
def test_values_expire_without_data(spark: SparkSession, checkpoint: str, layout: StateLayout) -> None:
    """The first subtask sends 20, the second one 10 half a second later. Then nothing arrives."""
    heard: list[Any] = []
    complete = threading.Event()

    def hear(records: list[Any], batch_id: int) -> None:
        heard.extend(records)
        if len(heard) == 4:
            complete.set()

    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=layout))
    env.set_parallelism(2)
    source = TestSource[int]([20, Pause(timedelta(milliseconds=500)), 10, QUIET])
    emitted = env.from_source(source).process(Emit())
    emitted.key_by(int).process(Watch()).with_uid("watch").with_parallelism(1).to_sink(ForeachBatchSink(hear))
    trigger = Trigger.processing_time(timedelta(milliseconds=300))
    job = env.execute_async("expiry", checkpoint_location=checkpoint, trigger=trigger)
    try:
        assert complete.wait(LONG), heard
    finally:
        job.stop()
    assert [value for of, value in heard if of == "all"] == [20, 10]
    assert [value for of, value in heard if of == 7] == [20, 10]
