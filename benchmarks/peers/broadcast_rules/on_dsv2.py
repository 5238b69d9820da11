"""A broadcast function that keeps the rules in broadcast state."""

from __future__ import annotations

from collections.abc import Collection

from benchmarks.jobs.broadcast_rules import EVENTS_PER_RULE, Rule, category_of, known_limit, lets_through, rule
from benchmarks.jobs.events import Events, EventTuple
from benchmarks.peers.dsv2_job import add_up, run_dsv2
from benchmarks.peers.protocol import Outcome, Task
from dsv2 import Collector, ExecutionEnvironment, NonPartitionedContext, PartitionedContext
from dsv2.functions import TwoInputBroadcastStreamProcessFunction
from dsv2.sources import DataGeneratorSource
from dsv2.state import BroadcastState, StateDeclaration, StateDeclarations

__all__ = ("measure", "pipeline")

RULES = StateDeclarations.map_state_builder("rules", int, Rule).build_broadcast()


class Apply(TwoInputBroadcastStreamProcessFunction[EventTuple, Rule, tuple[int, int]]):
    """Emits user and value of the events that pass."""

    rules: BroadcastState[int, Rule]

    def uses_states(self) -> Collection[StateDeclaration]:
        return [RULES]

    def open(self, ctx: NonPartitionedContext[tuple[int, int]]) -> None:
        self.rules = ctx.state_manager.get_state(RULES)

    def process_record_from_non_broadcast_input(
        self, record: EventTuple, output: Collector[tuple[int, int]], ctx: PartitionedContext[tuple[int, int]]
    ) -> None:
        category = category_of(record)
        known = self.rules.get(category)
        if lets_through(known.limit if known else known_limit(category), record):
            output.collect((record[0], record[2]))

    def process_record_from_broadcast_input(self, record: Rule, ctx: NonPartitionedContext[tuple[int, int]]) -> None:
        self.rules.put(record.category, record)


def measure(task: Task) -> Outcome:
    """Run the pipeline."""
    return run_dsv2(lambda env: pipeline(env, task), task)


def pipeline(env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build the pipeline of events and rules."""
    source = DataGeneratorSource(Events(task.keys, task.kind), count=task.total, records_per_batch=task.records)
    events = env.from_source(source, "events").with_uid("events")
    count, in_batch = -(-task.total // EVENTS_PER_RULE), -(-task.records // EVENTS_PER_RULE)
    generated = env.from_source(DataGeneratorSource(rule, count=count, records_per_batch=in_batch), "rules")
    rules = generated.with_uid("rules").with_parallelism(1).broadcast()
    return add_up(events.connect_and_process(rules, Apply()).with_uid("apply"))
