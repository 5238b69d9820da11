"""Listeners of local jobs: what they are told, in which order, and that they cannot affect the job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, JobHandle, JobStatus, Trigger
from dsv2.errors import ConfigurationError, UserFunctionError
from dsv2.graph import Plan
from dsv2.jobs import JobListener, JobProgress
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from tests.job_recorder import JobRecorder


class Failing(JobListener):
    """Raises whenever it is called."""

    def on_started(self, job: JobHandle, plan: Plan) -> None:
        raise ValueError("at the start")

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        raise ValueError("after a micro-batch")

    def on_ended(self, job: JobHandle) -> None:
        raise ValueError("at the end")


class Stopping(JobListener):
    """Stops the job after its first micro-batch."""

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        self.job = job
        job.stop()


def environment(*listeners: JobListener, count: int | None = 4, function: Any = abs) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    for listener in listeners:
        env.add_job_listener(listener)
    source = DataGeneratorSource(abs, count=count, records_per_batch=2)
    numbers = env.from_source(source).with_uid("in").map(function).with_uid("map")
    numbers.to_sink(CollectSink[int]()).with_uid("out")
    return env


@pytest.mark.parametrize("background", [False, True])
def test_listener_of_a_job_that_ends(background: bool) -> None:
    told = JobRecorder()
    env = environment(told)
    result = env.execute_async("sums").result() if background else env.execute("sums")
    assert told.events == [("started", "RUNNING", "sums"), (0, 2), (1, 4), (2, 4), ("ended", "FINISHED")]
    assert told.result == result


def test_batch_job_reports_at_its_end() -> None:
    told = JobRecorder()
    env = environment(told)
    env.set_execution_mode("batch")
    env.execute("sums")
    assert told.events == [("started", "RUNNING", "sums"), (0, 4), ("ended", "FINISHED")]


@pytest.mark.parametrize("background", [False, True])
def test_listener_of_a_job_that_fails(background: bool) -> None:
    told = JobRecorder()
    env = environment(told, function=lambda number: number // (2 - number))
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        env.execute_async("sums").result() if background else env.execute("sums")
    assert told.events == [("started", "RUNNING", "sums"), (0, 2), ("ended", "FAILED")]


@pytest.mark.parametrize("background", [False, True])
def test_listener_can_stop_the_job(background: bool) -> None:
    told, stopping = JobRecorder(), Stopping()
    env = environment(stopping, told, count=None)
    trigger = Trigger.processing_time()
    if background:
        env.execute_async("sums", trigger=trigger).result()
    else:
        env.execute("sums", trigger=trigger)
    assert told.events == [("started", "RUNNING", "sums"), (0, 2), ("ended", "STOPPED")]
    assert stopping.job.status is JobStatus.STOPPED


def test_listener_that_fails_does_not_affect_the_job(caplog: pytest.LogCaptureFixture) -> None:
    told = JobRecorder()
    environment(Failing(), told).execute("sums")
    assert told.events[-1] == ("ended", "FINISHED")
    assert {(record.name, record.levelname) for record in caplog.records} == {("dsv2.job", "ERROR")}
    calls = ["on_started", *["on_progress"] * 3, "on_ended"]
    assert [message.split()[0] for message in caplog.messages] == calls
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "at the start",
        *["after a micro-batch"] * 3,
        "at the end",
    ]


def test_ctrl_c_ends_the_job_for_its_listeners() -> None:
    told = JobRecorder()
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    env.add_job_listener(told)

    def interrupt(records: list[int], batch_id: int) -> None:
        raise KeyboardInterrupt

    env.from_source(DataGeneratorSource(abs, count=1)).map(abs).with_uid("map").to_sink(ForeachBatchSink(interrupt))
    with pytest.raises(KeyboardInterrupt):
        env.execute("sums")
    assert told.events == [("started", "RUNNING", "sums"), ("ended", "STOPPED")]


def test_a_run_without_work_has_a_start_and_an_end(tmp_path: Path) -> None:
    told = JobRecorder()
    for listeners in ((), (told,)):
        environment(*listeners).execute("sums", checkpoint_location=tmp_path)
    assert told.events == [("started", "RUNNING", "sums"), ("ended", "FINISHED")]


def test_listeners_of_one_environment_hear_of_all_its_jobs() -> None:
    told = JobRecorder()
    env = environment(told)
    env.execute("first")
    env.from_collection([1]).map(abs).with_uid("map").to_sink(CollectSink[int]())
    env.execute("second")
    assert [event[-1] for event in told.events if event[0] == "started"] == ["first", "second"]


def test_only_listeners_are_accepted_and_only_once() -> None:
    env, told = environment(), JobRecorder()
    env.add_job_listener(told)
    with pytest.raises(ConfigurationError, match="has been added before"):
        env.add_job_listener(told)
    with pytest.raises(ConfigurationError, match="takes a JobListener"):
        env.add_job_listener(JobRecorder)  # type: ignore[arg-type]
