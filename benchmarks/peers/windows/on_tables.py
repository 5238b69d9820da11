"""A declared aggregate of windows, on tables."""

from __future__ import annotations

from datetime import timedelta
from operator import attrgetter
from typing import NamedTuple

from benchmarks.common.tables import GeneratedTables
from benchmarks.jobs.event_tables import EventRow, EventTables
from benchmarks.jobs.windows import size
from benchmarks.peers.dsv2_job import run_dsv2
from benchmarks.peers.protocol import Outcome, Task
from benchmarks.peers.table_totals import add_up_tables
from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Key, Sum
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy

__all__ = ("measure", "pipeline")


class UserSum(NamedTuple):
    """The sum of a user in a window."""

    user: int
    value: int


def measure(task: Task) -> Outcome:
    """Run the pipeline."""
    return run_dsv2(lambda env: pipeline(env, task), task)


def pipeline(env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build the pipeline with a sink that adds up the sums of windows."""
    source = GeneratedTables(EventTables(task.keys), EventRow, task.total, task.records, task.parallelism)
    generator = EventTimeExtension.new_watermark_generator_builder(attrgetter("time")).build_as_process_function()
    timed = env.from_source(source, "events").with_uid("events").process(generator).with_uid("times")
    window = timed.key_by(attrgetter("user")).window(WindowStrategy.tumbling(timedelta(milliseconds=size(task))))
    sums = window.aggregate(UserSum, EventRow, user=Key(), value=Sum("value")).with_uid("sums")
    return add_up_tables(sums, UserSum, "value")
