"""A declared aggregate on tables."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from benchmarks.common.tables import GeneratedTables
from benchmarks.jobs.event_tables import EventRow, EventTables
from benchmarks.peers.dsv2_job import run_dsv2
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.table_totals import add_up_tables
from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Count, Key

__all__ = ("measure", "pipeline")


class UserCount(NamedTuple):
    """The number of events of a user so far."""

    user: int
    number: int


def measure(task: Task) -> Outcome:
    """Run the pipeline."""
    return run_dsv2(lambda env: pipeline(env, task), task)


def pipeline(env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build the pipeline that counts events by user."""
    source = GeneratedTables(EventTables(task.keys), EventRow, task.total, task.records, task.parallelism)
    events = env.from_source(source, "events").with_uid("events")
    counts = events.key_by(attrgetter("user")).aggregate(UserCount, EventRow, user=Key(), number=Count())
    return add_up_tables(counts.with_uid("counts"), UserCount, "number")
