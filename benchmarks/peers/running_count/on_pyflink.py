"""PyFlink: a keyed function with a value state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyflink.common import Types
from pyflink.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor

from benchmarks.jobs.events import KINDS
from benchmarks.jobs.running_count import one_more
from benchmarks.peers.protocol import Notes, Outcome, Task
from benchmarks.peers.pyflink_job import EVENT, Made, numbers, run

__all__ = ("measure",)


class Count(KeyedProcessFunction):
    """Emits the count of the user."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        count = one_more(self.state.value() or 0)
        self.state.update(count)
        yield count


def measure(task: Task) -> Outcome:
    """Run the job with one subtask per operator."""
    user_of = KINDS[task.kind].user
    record = EVENT if task.kind == "tuple" else Types.PICKLED_BYTE_ARRAY()

    def build(env: StreamExecutionEnvironment, notes: Notes) -> DataStream:
        events = numbers(env, task.total).map(Made(task, notes), output_type=record)
        return events.key_by(user_of, key_type=Types.LONG()).process(Count(), output_type=Types.LONG())

    return run(task, build)
