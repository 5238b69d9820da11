"""The pipeline of the example as one streaming query."""

from __future__ import annotations

from benchmarks.jobs.hot_topics import WINDOW, Tweets, threshold
from benchmarks.peers.dsv2_job import run_dsv2
from benchmarks.peers.protocol import Outcome, Task
from dsv2 import ExecutionEnvironment, NonKeyedPartitionStream
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from examples.hot_topics import HotTopic, build

__all__ = ("count", "measure", "pipeline")


def measure(task: Task) -> Outcome:
    """Run the pipeline. The modes are those of the plain loop: ``document`` or lazy."""
    return run_dsv2(lambda env: pipeline(env, task), task)


def pipeline(env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build the pipeline. Several tasks have two detectors each, because a few topics have most of the tweets."""
    env.set_parallelism(2 * task.parallelism if task.parallelism > 1 else 1)
    source = DataGeneratorSource(Tweets(task.keys), count=task.total, records_per_batch=task.records)
    tweets = env.from_source(source, "tweets")
    lazy = "document" not in task.mode
    hot = build(tweets, threshold=threshold(task), window=WINDOW, lazy=lazy, extractors=task.parallelism)
    return count(hot)


def count(hot: NonKeyedPartitionStream[HotTopic]) -> list[tuple[int, int]]:
    """Return a list that will contain the number of hot topics and the sum of their counts, per micro-batch."""
    totals: list[tuple[int, int]] = []

    def write(events: list[HotTopic], batch_id: int) -> None:
        totals.append((len(events), sum(event.count for event in events)))

    hot.to_sink(ForeachBatchSink(write)).with_uid("hot")
    return totals
