"""A keyed function with a value state, which takes the waiting events of a user together.

Mode ``single``: it takes single events.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from benchmarks.jobs.events import KINDS, Events
from benchmarks.jobs.running_count import one_more
from benchmarks.peers.dsv2_job import add_up, run_dsv2
from benchmarks.peers.protocol import Outcome, Task
from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclaration, StateDeclarations

__all__ = ("measure", "pipeline")

COUNT = StateDeclarations.value_state("count", int, default=0)


class Count(OneInputStreamProcessFunction[Any, tuple[int, int]]):
    """Emits user and count."""

    def __init__(self, kind: str) -> None:
        self.user_of = KINDS[kind].user

    def uses_states(self) -> Collection[StateDeclaration]:
        return [COUNT]

    def process_record(
        self, record: Any, output: Collector[tuple[int, int]], ctx: PartitionedContext[tuple[int, int]]
    ) -> None:
        count = ctx.state_manager.get_state(COUNT).update_with(one_more)
        output.collect((self.user_of(record), count))


class CountTogether(Count):
    """The same for several events of a user."""

    def process_records(
        self, records: Sequence[Any], output: Collector[tuple[int, int]], ctx: PartitionedContext[tuple[int, int]]
    ) -> None:
        state, user_of = ctx.state_manager.get_state(COUNT), self.user_of
        count = state.value()
        for record in records:
            count = one_more(count)
            output.collect((user_of(record), count))
        state.update(count)


def measure(task: Task) -> Outcome:
    """Run the pipeline."""
    return run_dsv2(lambda env: pipeline(env, task), task)


def pipeline(env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build the pipeline that counts events by user."""
    source = DataGeneratorSource(Events(task.keys, task.kind), count=task.total, records_per_batch=task.records)
    events = env.from_source(source, "events").with_uid("events")
    function = Count if "single" in task.mode else CountTogether
    return add_up(events.key_by(KINDS[task.kind].user).process(function(task.kind)).with_uid("counts"))
