"""A watermark generator, ``key_by`` and a window with ``reduce``."""

from __future__ import annotations

from datetime import timedelta

from benchmarks.jobs.events import Events, EventTuple
from benchmarks.jobs.windows import add, size, time_of, user_of
from benchmarks.peers.dsv2_job import add_up, run_dsv2
from benchmarks.peers.protocol import Outcome, Task
from dsv2 import ExecutionEnvironment, NonKeyedPartitionStream
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.sources import DataGeneratorSource

__all__ = ("measure", "pipeline", "sums_of_windows")


def measure(task: Task) -> Outcome:
    """Run the pipeline."""
    return run_dsv2(lambda env: pipeline(env, task), task)


def pipeline(env: ExecutionEnvironment, task: Task) -> list[tuple[int, int]]:
    """Build the pipeline with a sink that adds up the sums of windows."""
    return add_up(sums_of_windows(env, task))


def sums_of_windows(env: ExecutionEnvironment, task: Task) -> NonKeyedPartitionStream[EventTuple]:
    """Build the pipeline up to the sums of windows."""
    source = DataGeneratorSource(Events(task.keys, task.kind), count=task.total, records_per_batch=task.records)
    generator = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
    timed = env.from_source(source, "events").with_uid("events").process(generator).with_uid("times")
    windows = WindowStrategy.tumbling(timedelta(milliseconds=size(task)))
    return timed.key_by(user_of).window(windows).reduce(add).with_uid("sums")
