"""Restarts of local jobs after failures, from the checkpoint and in the same process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment, JobError, JobHandle, JobStatus, RuntimeExecutionMode
from dsv2.base.folders import LocalFolder
from dsv2.connectors.files import read_files
from dsv2.errors import (
    ConfigurationError,
    ContractError,
    CorruptDataError,
    Dsv2Error,
    InternalError,
    ResourceError,
    SchemaError,
    UserFunctionError,
)
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.jobs.listener import JobListener
from dsv2.jobs.progress import JobProgress
from dsv2.local import LocalRuntime, RestartPolicy
from dsv2.local.restarts import Restarts
from dsv2.savepoint.metadata import read_info
from dsv2.sinks import FileSink, ForeachBatchSink
from dsv2.state import StateDeclarations
from dsv2.testing import Crash, ManualClock, TestSource
from tests.durations import LONG, ms

COUNT = StateDeclarations.value_state("count", int, default=0)
LIMIT = timedelta(seconds=LONG)
POLICY = RestartPolicy(attempts=3, delay=ms(100), max_delay=ms(300), within=ms(10_000))


class Clock(ManualClock):
    """Notes how long the job has waited. ``during`` is called in each wait, in the thread of the job."""

    def __init__(self) -> None:
        super().__init__()
        self.waited = timedelta(0)
        self.during: Callable[[], None] = lambda: None

    def wait(self, duration: timedelta) -> None:
        self.during()
        super().wait(duration)
        self.waited += duration


class Events(JobListener):
    """What a listener is called with."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.job: Any

    def on_started(self, job: JobHandle, plan: Any) -> None:
        self.job = job
        self.seen.append("started")

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        self.seen.append((progress.batch_id, progress.operators["count"].records_in, progress.restarts))

    def on_restarting(self, job: JobHandle, error: Dsv2Error) -> None:
        progress = job.progress
        self.seen.append((type(error).__name__, job.status.value, progress.batch_id, progress.restarts))

    def on_ended(self, job: JobHandle) -> None:
        self.seen.append(job.status.value)


class Row(NamedTuple):
    text: str


class Count(OneInputStreamProcessFunction[int, str]):
    def uses_states(self) -> Any:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect(f"{record}/{count.value()}")


class Job:
    """A job that counts the records of ``items``. Each entry of ``failures`` lets one call of its sink fail."""

    def __init__(self, tmp_path: Path, items: list[Any], *failures: BaseException | None) -> None:
        self.clock, self.events = Clock(), Events()
        self.written: list[list[str]] = []
        self.failures = list(failures)
        self._path, self._items = tmp_path, items

    def _write(self, records: list[str], batch_id: int) -> None:
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure
        self.written[batch_id:] = [records]

    def start(self, restarts: RestartPolicy | None = POLICY, **options: Any) -> Any:
        runtime = LocalRuntime(clock=self.clock, restarts=restarts, batches=[1])
        env = ExecutionEnvironment.get_instance(runtime)
        env.add_job_listener(self.events)
        counts = env.from_source(TestSource[int](self._items)).with_uid("in").key_by(itself).process(Count())
        counts.with_uid("count").to_sink(ForeachBatchSink(self._write)).with_uid("out")
        counts.map(Row).with_uid("rows").to_sink(FileSink(self._path / "files", schema=Row)).with_uid("files")
        return env.execute_async("job", **{"checkpoint_location": self._path / "checkpoint"} | options)

    def run(self, restarts: RestartPolicy | None = POLICY, **options: Any) -> Any:
        job = self.start(restarts, **options)
        assert job.await_termination(LIMIT)
        return job

    def files(self) -> list[str]:
        return sorted(read_files(self._path / "files", after=-1).to_arrow().column(0).to_pylist())


def itself(number: int) -> int:
    return number


def test_job_continues_from_its_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(tmp_path, [7, 7, Crash(), 7, 8])
    handle = job.run()
    assert handle.status is JobStatus.FINISHED
    assert handle.progress.restarts == 1
    assert [record for records in job.written for record in records] == ["7/1", "7/2", "7/3", "8/1"]
    assert job.files() == ["7/1", "7/2", "7/3", "8/1"]
    assert job.events.seen[:4] == ["started", (0, 1, 0), (1, 2, 0), ("JobError", "RUNNING", 1, 1)]
    assert job.events.seen[-2:][0][1:] == (4, 1)
    assert job.events.seen[-1] == "FINISHED"
    assert job.clock.waited == ms(100)
    [record] = (record for record in caplog.records if record.name == "dsv2.job")
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "Job 'job' has failed. Restart 1 begins from its last checkpoint in 0.1 s."
    assert "an intended crash" in str(record.exc_info and record.exc_info[1])


def test_micro_batch_that_a_sink_lacks_is_written_again(tmp_path: Path) -> None:
    job = Job(tmp_path, [7, 7], None, OSError("the database is away"), OSError("still"))
    assert job.run().progress.restarts == 2
    assert [records for records in job.written if records] == [["7/1"], ["7/2"]]
    assert job.files() == ["7/1", "7/2"]
    assert job.clock.waited == ms(100 + 200)


def test_failure_before_the_first_micro_batch(tmp_path: Path) -> None:
    failing = [True]

    def fail_once(number: int) -> int:
        if failing:
            failing.pop()
            raise ValueError("not yet")
        return number

    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=Clock(), restarts=POLICY, checks=False))
    written: list[int] = []
    stream = env.from_collection([7]).with_uid("in").map(fail_once).with_uid("map")
    stream.to_sink(ForeachBatchSink(lambda records, batch_id: written.extend(records))).with_uid("out")
    result = env.execute("job", checkpoint_location=tmp_path)
    assert (written, result.progress.restarts) == ([7], 1)


def test_last_error_is_raised_when_no_attempt_is_left(tmp_path: Path) -> None:
    job = Job(tmp_path, [7], *(OSError(f"failure {number}") for number in range(9)))
    handle = job.start()
    with pytest.raises(JobError, match="failure 3"):
        handle.await_termination(LIMIT)
    assert handle.status is JobStatus.FAILED
    assert [one for one in job.events.seen if one[0] == "JobError"] == [
        ("JobError", "RUNNING", -1, n) for n in (1, 2, 3)
    ]
    assert job.clock.waited == ms(100 + 200 + 300)
    job.failures.clear()
    job.run(None)
    assert job.files() == ["7/1"], "the checkpoint was released"


def test_job_without_a_policy_ends(tmp_path: Path) -> None:
    handle = Job(tmp_path, [7, Crash(), 7]).start(None)
    with pytest.raises(JobError, match="intended"):
        handle.await_termination(LIMIT)


def test_permanent_errors_are_raised_at_once(tmp_path: Path) -> None:
    job = Job(tmp_path, [7], ConfigurationError("a wrong table"))
    with pytest.raises(JobError, match="a wrong table"):
        job.start().await_termination(LIMIT)
    assert job.events.seen == ["started", "FAILED"]


def test_damage_that_a_restart_finds_is_raised(tmp_path: Path) -> None:
    def damage() -> None:
        for file in (tmp_path / "checkpoint" / "local").glob("*.log"):
            file.write_bytes(b"x" * file.stat().st_size)

    job = Job(tmp_path, [7, Crash(), 7])
    job.clock.during = damage
    with pytest.raises(CorruptDataError):
        job.start().await_termination(LIMIT)


def test_stop_ends_the_wait(tmp_path: Path) -> None:
    job = Job(tmp_path, [7, Crash(), 7])
    job.clock.during = lambda: job.events.job.stop()
    handle = job.start()
    with pytest.raises(JobError, match="intended"):
        handle.await_termination(LIMIT)
    assert handle.status is JobStatus.FAILED, "its last micro-batch may be incomplete"
    assert job.clock.waited == ms(50)
    job.clock.during = lambda: None
    assert job.run(None).status is JobStatus.FINISHED


def test_savepoint_is_taken_after_the_restart(tmp_path: Path) -> None:
    job = Job(tmp_path, [7, Crash(), 7, 8])
    asking: list[Future[str]] = []

    def ask() -> None:
        if not asking:
            asking.append(pool.submit(job.events.job.savepoint, tmp_path / "savepoint"))
            while not job.events.job._control._requests:
                threading.Event().wait(0.001)

    job.clock.during = ask
    with ThreadPoolExecutor() as pool:
        assert job.run().status is JobStatus.FINISHED
    assert read_info(LocalFolder(asking[0].result())).batch_id == 1


def test_restarts_require_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"requires a checkpoint_location.* write its output twice"):
        Job(tmp_path, [7]).start(checkpoint_location=None)


def test_batch_jobs_have_no_restarts() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(restarts=POLICY))
    env.set_execution_mode(RuntimeExecutionMode.BATCH)
    env.from_collection([1]).to_sink(ForeachBatchSink(lambda records, batch_id: None))
    with pytest.raises(ConfigurationError, match="requires a checkpoint_location"):
        env.execute("job")


def delays(restarts: Restarts, *times_ms: int) -> list[int | None]:
    return [restarts.delay_ms(JobError("a failure"), time_ms) for time_ms in times_ms]


def test_attempts_count_within_a_time() -> None:
    restarts = Restarts(POLICY)
    assert delays(restarts, 0, 1000, 2000, 9_999) == [100, 200, 300, None]
    assert delays(restarts, 10_000, 10_001) == [300, None], "the first one is too long ago to count"
    assert delays(restarts, 30_000) == [100]
    assert restarts.count == 5
    assert delays(Restarts(None), 0) == [None]


@pytest.mark.parametrize("error", [SchemaError("no column"), CorruptDataError("damaged"), ContractError("no key")])
def test_errors_that_are_permanent(error: Dsv2Error) -> None:
    in_function = UserFunctionError(operator="", callback="", subtask=0, location="", cause_type="", cause_message="")
    in_function.cause = error
    assert Restarts(POLICY).delay_ms(error, 0) is None
    assert Restarts(POLICY).delay_ms(in_function, 0) is None
    in_function.cause = OSError("away")
    for other in (in_function, ResourceError("no model"), InternalError("a bug")):
        assert Restarts(POLICY).delay_ms(other, 0) == 100


@pytest.mark.parametrize("arguments", [{"attempts": 0}, {"delay": ms(-1)}, {"max_delay": 5}, {"within": ms(0)}])
def test_policies_that_are_refused(arguments: Any) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(arguments))):
        RestartPolicy(**arguments)
