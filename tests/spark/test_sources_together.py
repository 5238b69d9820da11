"""Aligned sources and hybrid sources on Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext, Trigger
from dsv2.extension.event_time import EventTimeExtension, TwoInputNonBroadcastEventTimeStreamProcessFunction
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.jobs.progress_log import read_progress
from dsv2.model import RecordBatch
from dsv2.sinks import CollectSink
from dsv2.sources import HybridSource, RoundRobinSplitAssigner, WatermarkStrategy
from dsv2.watermark import Watermark, WatermarkHandlingResult, new_builder
from tests.spans import Item, Span, Spans, SpansInFile, everything, number_of

LIVE = new_builder("live").type_bool().combine_wait_for_all_channels(True).build()


class Wide(Spans):
    """Each record advances event time 50 times as far."""

    def read(self, start: Span, stop: Span, /) -> Iterator[RecordBatch[Item]]:
        for run in super().read(start, stop):
            yield RecordBatch([item._replace(number=item.number * 50) for item in run.records])


class Ahead(TwoInputNonBroadcastEventTimeStreamProcessFunction[Item, Item, int]):
    """Emits how far each record is ahead of event time."""

    def __init__(self) -> None:
        self.time = 0

    def process_record_from_first_input(
        self, record: Item, output: Collector[int], ctx: PartitionedContext[int]
    ) -> None:
        output.collect(record.number - self.time)

    def process_record_from_second_input(
        self, record: Item, output: Collector[int], ctx: PartitionedContext[int]
    ) -> None:
        output.collect(record.number - self.time)

    def on_event_time_watermark(self, timestamp: int, output: Collector[int], ctx: NonPartitionedContext[int]) -> None:
        self.time = timestamp


def furthest(spark: SparkSession, checkpoint: str, strategy: WatermarkStrategy[Item]) -> int:
    """Return how far records are ahead of event time at most. A micro-batch has 500 ms of the fast source, 200 ms of
    the slow one."""
    env = ExecutionEnvironment.get_instance(spark=spark)
    sink = CollectSink[int]()
    fast = env.from_source(Wide({"fast": 40}, limit=10), "fast", watermarks=strategy)
    slow = env.from_source(Spans({"slow": 2000}, limit=200), "slow", watermarks=strategy)
    fast.connect_and_process(slow, Ahead()).to_sink(sink)
    env.execute(checkpoint_location=checkpoint)
    assert len(sink.results) == 2040
    return max(sink.results)


def test_aligned_sources_stay_near_each_other(spark: SparkSession, tmp_path: Path) -> None:
    strategy = EventTimeExtension.new_watermark_generator_builder(number_of).build_as_watermark_strategy()
    aligned = strategy.with_watermark_alignment("g", timedelta(milliseconds=300), timedelta(milliseconds=1))
    assert furthest(spark, str(tmp_path / "without"), strategy) >= 1300
    assert furthest(spark, str(tmp_path / "with"), aligned) <= 1000
    operators = [operator for progress in read_progress(tmp_path / "with") for operator in progress.operators.values()]
    paused = {split.split for operator in operators for split in operator.splits if split.paused}
    assert paused == {"fast"}


class Recorder(OneInputStreamProcessFunction[Item, Any]):
    """Forwards records, and emits a record when the stream is live."""

    def process_record(self, record: Item, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(record)

    def on_watermark(
        self, watermark: Watermark, output: Collector[Any], ctx: NonPartitionedContext[Any]
    ) -> WatermarkHandlingResult:
        output.collect("live")
        return WatermarkHandlingResult.PEEK


def test_stream_follows_history_once_over_several_runs(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    file, history, heard = tmp_path / "ends", {"a": 7, "b": 4}, list[Any]()
    for ends in ({"x": 0}, {"x": 3}, {"x": 3, "y": 4}):
        file.write_text(json.dumps(ends))
        live = SpansInFile(str(file), limit=2, assigner=RoundRobinSplitAssigner())
        source = HybridSource([Spans(history, limit=5), live], watermark_at_switch=LIVE)
        env = ExecutionEnvironment.get_instance(spark=spark)
        sink = CollectSink[Any]()
        items = env.from_source(source).with_uid("both").with_parallelism(2)
        items.process(Recorder()).with_uid("heard").with_parallelism(1).to_sink(sink)
        env.execute(checkpoint_location=checkpoint, trigger=Trigger.available_now())
        heard += sink.results
        if ends == {"x": 0}:
            assert heard[-1] == "live"  # in the run that reads the history to its end
    assert sorted(heard[:11]) == everything(history)
    assert heard[11] == "live"
    assert sorted(heard[12:]) == everything({"x": 3, "y": 4})
