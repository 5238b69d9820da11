"""PyFlink: ``map``, which PyFlink chains to the function that creates the events."""

from __future__ import annotations

from pyflink.common import Types
from pyflink.datastream import DataStream, StreamExecutionEnvironment

from benchmarks.jobs.events import KINDS
from benchmarks.jobs.pass_through import passed
from benchmarks.peers.protocol import Notes, Outcome, Task
from benchmarks.peers.pyflink_job import EVENT, Made, numbers, run

__all__ = ("measure",)


def measure(task: Task) -> Outcome:
    """Run the job with one subtask per operator."""
    value_of = KINDS[task.kind].value
    record = EVENT if task.kind == "tuple" else Types.PICKLED_BYTE_ARRAY()

    def build(env: StreamExecutionEnvironment, notes: Notes) -> DataStream:
        events = numbers(env, task.total).map(Made(task, notes), output_type=record)
        return events.map(passed, output_type=record).map(value_of, output_type=Types.LONG())

    return run(task, build)
