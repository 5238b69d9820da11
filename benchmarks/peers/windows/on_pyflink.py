"""PyFlink: its windows with ``reduce``."""

from __future__ import annotations

from typing import Any

from pyflink.common import Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import DataStream, StreamExecutionEnvironment
from pyflink.datastream.window import TumblingEventTimeWindows

from benchmarks.jobs.windows import add, size, time_of, user_of
from benchmarks.peers.protocol import Notes, Outcome, Task
from benchmarks.peers.pyflink_job import EVENT, Made, numbers, run

__all__ = ("measure",)


class Times(TimestampAssigner):
    """Extracts the times of events."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return time_of(value)


def measure(task: Task) -> Outcome:
    """Run the job with one subtask per operator."""

    def build(env: StreamExecutionEnvironment, notes: Notes) -> DataStream:
        events = numbers(env, task.total).map(Made(task, notes), output_type=EVENT)
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0))
        timed = events.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Times()))
        users = timed.key_by(user_of, key_type=Types.LONG())
        windows = users.window(TumblingEventTimeWindows.of(Time.milliseconds(size(task))))
        return windows.reduce(add, output_type=EVENT).map(lambda event: event[2], output_type=Types.LONG())

    return run(task, build)
