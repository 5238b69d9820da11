"""Code shared by the dsv2 pipelines: a function that adds up results, and a sink for the sums."""

from __future__ import annotations

from typing import Any

from dsv2 import Collector, NonKeyedPartitionStream, NonPartitionedContext, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import ForeachBatchSink

__all__ = ("Tally", "add_up")


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
