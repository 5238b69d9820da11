"""A process function between source and sink. Mode ``map``: the built-in ``map``, which is chained to the source."""

from __future__ import annotations

from typing import Any

from benchmarks.jobs.events import KINDS, Events
from benchmarks.jobs.pass_through import passed
from benchmarks.peers.dsv2_job import run_dsv2
from benchmarks.peers.protocol import Outcome, Task
from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource

__all__ = ("measure", "pipeline")


class Pass(OneInputStreamProcessFunction[Any, Any]):
    """Forwards every record."""

    def process_record(self, record: Any, output: Collector[Any], ctx: PartitionedContext[Any]) -> None:
        output.collect(passed(record))


def measure(task: Task) -> Outcome:
    """Run the pipeline."""
    return run_dsv2(lambda env: pipeline(env, task), task)


def pipeline(env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build the pipeline, with a function on the driver as sink."""
    totals: list[tuple[int, int]] = []
    value_of = KINDS[task.kind].value

    def write(events: list[Any], batch_id: int) -> None:
        totals.append((len(events), sum(map(value_of, events))))

    source = DataGeneratorSource(Events(task.keys, task.kind), count=task.total, records_per_batch=task.records)
    events = env.from_source(source, "events").with_uid("events")
    through = events.map(passed) if "map" in task.mode else events.process(Pass())
    through.with_uid("pass").to_sink(ForeachBatchSink(write)).with_uid("told")
    return totals
