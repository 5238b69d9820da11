"""Code shared by the dsv2 pipelines: their runtime, a function that adds up results, and a sink for the sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.peers.local import run_local
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.spark import run_on_spark
from dsv2 import Collector, ExecutionEnvironment, NonKeyedPartitionStream, NonPartitionedContext, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import ForeachBatchSink

__all__ = ("Tally", "add_up", "run_dsv2")


class Tally(OneInputStreamProcessFunction[Any, tuple[int, int]]):
    """Adds up a field of records, and emits their number and sum at the end of input."""

    def __init__(self, place: int) -> None:
        self.place = place
        self.results = self.checksum = 0

    def process_record(
        self,
        record: Any,
        output: Collector[tuple[int, int]],
        ctx: PartitionedContext[tuple[int, int]],
    ) -> None:
        self.results += 1
        self.checksum += record[self.place]

    def end_input(self, ctx: NonPartitionedContext[tuple[int, int]]) -> None:
        totals = self.results, self.checksum
        ctx.apply_to_all_partitions(lambda output, _: output.collect(totals))


def add_up(results: NonKeyedPartitionStream[Any], place: int = -1) -> list[tuple[int, int]]:
    """Return a list that will contain the number and the sum of each subtask. ``Tally`` is chained to its input.

    Args:
        results: Tuples.
        place: The place of the number in them.
    """
    totals: list[tuple[int, int]] = []
    tally = results.process(Tally(place)).with_uid("tally")
    tally.to_sink(ForeachBatchSink(lambda records, batch_id: totals.extend(records))).with_uid("told")
    return totals


def run_dsv2(build: Callable[[ExecutionEnvironment], list[tuple[int, int]]], task: Task) -> Outcome:
    """Run a pipeline on the local runtime in the mode ``local``, otherwise on Spark as one streaming query."""
    return (run_local if "local" in task.mode else run_on_spark)(build, task)
