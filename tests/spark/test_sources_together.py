"""Aligned sources on Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.extension.event_time import EventTimeExtension, TwoInputNonBroadcastEventTimeStreamProcessFunction
from dsv2.jobs.progress_log import read_progress
from dsv2.model import RecordBatch
from dsv2.sinks import CollectSink
from dsv2.sources import WatermarkStrategy
from tests.spans import Item, Span, Spans, number_of


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
