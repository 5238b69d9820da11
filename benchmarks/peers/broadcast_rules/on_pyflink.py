"""PyFlink: a broadcast process function, with the rules in broadcast state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyflink.common import Types
from pyflink.datastream import BroadcastProcessFunction, DataStream, StreamExecutionEnvironment
from pyflink.datastream.state import MapStateDescriptor

from benchmarks.jobs.broadcast_rules import EVENTS_PER_RULE, category_of, known_limit, lets_through, rule
from benchmarks.peers.protocol import Notes, Outcome, Task
from benchmarks.peers.pyflink_job import EVENT, Made, numbers, run

__all__ = ("measure",)

RULES = MapStateDescriptor("rules", Types.LONG(), EVENT)


class Apply(BroadcastProcessFunction):
    """Emits the values of the events that pass."""

    def process_element(self, value: Any, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterator[int]:
        category = category_of(value)
        known = ctx.get_broadcast_state(RULES).get(category)
        if lets_through(known[1] if known else known_limit(category), value):
            yield value[2]

    def process_broadcast_element(self, value: Any, ctx: BroadcastProcessFunction.Context) -> Iterator[int]:
        ctx.get_broadcast_state(RULES).put(value[0], value)
        yield from ()


def measure(task: Task) -> Outcome:
    """Run the job with one subtask per operator."""

    def build(env: StreamExecutionEnvironment, notes: Notes) -> DataStream:
        events = numbers(env, task.total).map(Made(task, notes), output_type=EVENT)
        indices = numbers(env, -(-task.total // EVENTS_PER_RULE))
        rules = indices.map(lambda index: tuple(rule(index)), output_type=EVENT)
        return events.connect(rules.broadcast(RULES)).process(Apply(), output_type=Types.LONG())

    return run(task, build)
