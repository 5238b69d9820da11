"""A job that tests kill, with the splits of one source and then of another.

``python -m tests.spark.kill_splits_job FOLDER``.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from dsv2 import Collector, PartitionedContext
from dsv2.extension.event_time import EventTimeExtension
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import FileSink, ForeachBatchSink
from dsv2.sources import HybridSource
from tests.spans import Item, Spans, number_of
from tests.spark.kill_job import CountAll, Counted, Total, gate_of_batch, new_session
from tests.spark.processes import Gate
from tests.spark.programs import environment

HISTORY = {"span-0": 1_000, "span-1": 1_500, "span-2": 2_000}
LIVE = {"span-3": 2_500, "span-4": 3_000}
LIMIT = 500
SWITCH = sum(HISTORY.values()) // LIMIT
"""The micro-batch in which the second source starts."""


class CountPerSpan(OneInputStreamProcessFunction[Item, Counted]):
    """Emits key and number of each record: the number in its span if no record is lost, repeated or out of order."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def process_record(self, record: Item, output: Collector[Counted], ctx: PartitionedContext[Counted]) -> None:
        count = self.counts.get(record.span, 0)
        if count != record.number:
            raise ValueError(f"{record} comes after {count} others")
        self.counts[record.span] = count + 1
        output.collect(Counted(int(record.span[-1]), count + 1))


def run(spark: SparkSession, folder: str) -> None:
    """Run, or continue, the job whose checkpoint and output are in ``folder``."""
    env = environment(spark, 2)
    source = HybridSource([Spans(ends, limit=LIMIT, run=100) for ends in (HISTORY, LIVE)])
    strategy = EventTimeExtension.new_watermark_generator_builder(number_of).build_as_watermark_strategy()
    items = env.from_source(source, watermarks=strategy).with_uid("spans").with_parallelism(3)
    counted = items.key_by(lambda item: item.span).process(CountPerSpan()).with_uid("per-span")
    counted.to_sink(FileSink(f"{folder}/counted", schema=Counted))
    total = counted.global_().process(CountAll(Gate(folder, "all"))).with_uid("all")
    total.to_sink(FileSink(f"{folder}/total", format="json", schema=Total))
    total.to_sink(ForeachBatchSink(lambda records, batch_id: gate_of_batch(folder, batch_id).pass_through()))
    env.execute("kill splits", checkpoint_location=f"{folder}/checkpoint")


def main(folder: str) -> None:
    """Run the job with its own session."""
    spark = new_session(folder)
    run(spark, folder)
    spark.stop()


if __name__ == "__main__":
    # The importable module, not this copy of it: tests continue the job.
    from tests.spark import kill_splits_job

    kill_splits_job.main(sys.argv[1])
