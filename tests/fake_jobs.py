"""Jobs that do not run, with any progress, for tests of what is shown of jobs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from os import PathLike

from dsv2 import CollectSink, Dsv2Error, ExecutionEnvironment, JobResult, JobStatus
from dsv2.graph import Plan
from dsv2.jobs import JobProgress
from dsv2.jobs.progress import BatchProgress, OperatorProgress, SplitProgress, SubtaskProgress
from dsv2.jobs.watermark_report import WatermarkReport
from examples import hot_topics
from examples.tweets import Tweet
from tests.durations import ms

NOTHING = JobProgress(-1, {})
"""The progress of a job without a complete micro-batch."""

NEWEST = 1_362_400_000_000  # 2013-03-04 12:26:40


class FakeJob:
    """A job that ends when it is told to.

    Args:
        plan: Its plan.
        progress: Returns its progress.
    """

    def __init__(self, plan: Plan, progress: Callable[[], JobProgress] = lambda: NOTHING) -> None:
        self.plan = plan
        self._progress = progress
        self.status = JobStatus.RUNNING
        self.stops: list[timedelta | None] = []
        self.failure: Dsv2Error | None = None

    @property
    def progress(self) -> JobProgress:
        return self._progress()

    def watermarks(self, identifier: str = "event-time", operator: str | None = None) -> WatermarkReport:
        raise NotImplementedError

    def await_termination(self, timeout: timedelta | None = None) -> bool:
        if self.failure is not None:
            raise self.failure
        return self.status is not JobStatus.RUNNING

    def stop(self, timeout: timedelta | None = None) -> None:
        self.stops.append(timeout)
        self.status = JobStatus.STOPPED

    def savepoint(self, path: str | PathLike[str]) -> str:
        raise NotImplementedError

    def stop_with_savepoint(self, path: str | PathLike[str]) -> str:
        raise NotImplementedError

    def exception(self) -> Dsv2Error | None:
        return self.failure

    def result(self) -> JobResult:
        return JobResult(self.plan.job_name, ms(0.0), self.progress)


def hot_topics_plan() -> Plan:
    """The plan of the hot-topics example."""
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(2)
    hot_topics.build(env.from_collection([Tweet("a", 1)])).to_sink(CollectSink()).with_uid("events")
    return env.build_plan("hot topics")


def hot_topics_progress(batch_id: int = 8) -> JobProgress:
    """The progress of that job. Its detector is busy for 72 % of the time, and holds records and has errors."""
    batches = tuple(
        BatchProgress(number, 3000 * number, 2900.0, {}, 20_000 + number * 7_919 % 9_000)
        for number in range(batch_id + 1)
    )
    read = sum(batch.records_in for batch in batches)
    newest = NEWEST + batch_id * 3_600_000
    detectors = (
        SubtaskProgress(
            0, read // 2, read // 200, user_time_ms=batch_id * 1300.0, errors=3, keys=104, state_bytes=48_000_000
        ),
        SubtaskProgress(1, read // 2, read // 200, user_time_ms=batch_id * 2100.0, state_bytes=123),
    )
    operators = (
        OperatorProgress(
            "tweets", "tweets", 0, read, records_out_per_second=8_000.0, splits=(SplitProgress("0", 0, lag=1_200_000),)
        ),
        OperatorProgress(
            "extractor",
            "Process",
            read,
            read,
            records_in_per_second=8_231.4,
            subtasks=(SubtaskProgress(0, read, read, user_time_ms=batch_id * 300.0),),
        ),
        OperatorProgress(
            "detector",
            "KeyedProcess",
            read,
            read // 100,
            records_held=12,
            watermarks={"newest-posting-time": (newest, newest - 3_000)},
            records_in_per_second=8_231.4,
            state_bytes=48_000_123,
            subtasks=detectors,
        ),
        OperatorProgress("events", "Sink", read // 100),
    )
    return JobProgress(batch_id, {operator.uid: operator for operator in operators}, batches)


def steps_plan(count: int = 30) -> Plan:
    """The plan of a job with many operators, none of which are chained."""
    env = ExecutionEnvironment.get_instance("local")
    stream = env.from_collection([1])
    for number in range(count):
        stream = stream.map(abs).with_uid(_step(number)).with_parallelism(1 + number % 2)
    stream.to_sink(CollectSink()).with_uid("out")
    return env.build_plan("many steps")


def steps_progress(count: int = 30, batch_id: int = 8) -> JobProgress:
    """The progress of that job. Each operator is a second of event time behind the one before it."""
    operators = {
        _step(number): OperatorProgress(
            _step(number),
            "Map",
            1_000 * batch_id,
            1_000 * batch_id - number,
            records_in_per_second=10.0 * number,
            subtasks=(
                SubtaskProgress(
                    0,
                    user_time_ms=batch_id * 10.0 * (number * 7 % 29),
                    event_time=NEWEST - number * 1_000,
                    late_records=number % 3,
                ),
            ),
        )
        for number in range(count)
    }
    batches = tuple(BatchProgress(number, 300 * number, 290.0, {}, 1_000) for number in range(batch_id + 1))
    return JobProgress(batch_id, operators, batches)


def _step(number: int) -> str:
    return f"step {number} of the pipeline"
