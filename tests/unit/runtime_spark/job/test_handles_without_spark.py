"""Handles of jobs on Spark whose query fails, ends or hangs in unusual ways, with replacements for Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from dsv2 import JobError, JobStatus
from dsv2.base.clock import SystemClock
from dsv2.checkpoint.task_report import TaskReport
from dsv2.errors import ConfigurationError, UserFunctionError
from dsv2.graph import Operator, OperatorKind, Plan
from dsv2.model.context import RuntimeExecutionMode
from dsv2.runtime.report import base_job
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.report.job_reports import JobReports
from dsv2.sinks import CollectSink
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.state_limit import StateSizes
from runtime_spark.job.batch_job import BatchJob
from runtime_spark.job.micro_batch_writer import MicroBatchWriter
from runtime_spark.job.progress_thread import ProgressThread
from runtime_spark.job.query import StreamingJob
from tests.support import local_environment


def plan_in(mode: RuntimeExecutionMode) -> Plan:
    env = local_environment()
    env.set_execution_mode(mode)
    env.from_collection([1]).to_sink(CollectSink()).with_uid("out")
    return env.build_plan("words")


class Query:
    """Replaces a Spark query that has ended by itself."""

    runId = "a run"  # noqa: N815 - Spark's name

    def __init__(self, error: Exception | None = None, *, active: bool = False, reachable: bool = True) -> None:
        self._error = error
        self._active = active
        self._reachable = reachable
        self.status = {"isTriggerActive": False, "message": "Waiting for data to arrive"}

    @property
    def isActive(self) -> bool:  # noqa: N802
        if not self._reachable:
            raise ConnectionError("the session has been stopped")
        return self._active

    def exception(self) -> Exception | None:
        return self._error

    def awaitTermination(self, timeout: float | None = None) -> bool:  # noqa: N802
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        raise ConnectionError("not now")


def streaming_job(plan: Plan, writer: MicroBatchWriter, *, only_available: bool) -> StreamingJob:
    """A job without a session. Its progress goes nowhere."""
    layout, reports = Layout.of(plan), JobReports(plan, in_portions=True)
    return StreamingJob(
        Mock(version="4.3.0"),
        plan,
        writer,
        reports,
        StateSizes(plan, layout),
        ProgressThread(plan, reports, Mock(), JobListeners(()), Mock()),
        SystemClock(),
        only_available=only_available,
        state_key=None,
    )


class Job:
    """A job over ``query``, and the replacements of its parts."""

    def __init__(self, query: Query) -> None:
        self.writer, self.checkpoint, self.lease = Mock(files=[], writes_to=None), Mock(), Mock()
        self.checkpoint.ended_sources.return_value = ()
        self.checkpoint.traced_batch, self.checkpoint.first_batch = None, 0
        self.checkpoint.next_batch = 0
        plan = plan_in(RuntimeExecutionMode.STREAMING)
        writer = MicroBatchWriter(self.writer, Mock(), Mock(), self.checkpoint, self.lease)
        self.handle = streaming_job(plan, writer, only_available=False)
        self.checkpoint.is_complete = False
        self.query = query

    def start(self) -> StreamingJob:
        self.handle.start(lambda: self.query)  # type: ignore[arg-type, return-value]
        return self.handle


def test_handle_shows_its_status() -> None:
    assert repr(Job(Query()).start()) == "<job 'words': FINISHED>"


def test_job_of_a_stopped_session_is_over() -> None:
    assert Job(Query(reachable=False)).start()._is_over()


def test_interrupted_start_releases_the_lease() -> None:
    def interrupt() -> Any:
        raise KeyboardInterrupt

    job = Job(Query())
    with pytest.raises(KeyboardInterrupt):
        job.handle.start(interrupt)
    job.lease.release.assert_called_once()


def test_error_of_the_query_is_that_of_the_job() -> None:
    handle = Job(Query(RuntimeError("no space left"))).start()
    assert isinstance(handle.exception(), JobError)
    assert "no space left" in str(handle.exception())
    assert handle.status is JobStatus.FAILED
    with pytest.raises(JobError, match="no space left"):
        handle.savepoint("unused")


def test_query_that_was_told_to_end_has_not_failed() -> None:
    handle = Job(Query(RuntimeError("interrupted"))).start()
    handle._refused = True
    assert handle.await_termination() is True


def test_file_sink_that_fails_at_the_end_fails_the_job() -> None:
    job = Job(Query())
    job.handle._writer.publish = Mock(side_effect=OSError("cannot publish"))  # type: ignore[method-assign]
    handle = job.start()
    with pytest.raises(JobError, match="cannot publish"):
        handle.await_termination()
    job.lease.release.assert_called()


def test_query_that_cannot_be_stopped_releases_the_lease() -> None:
    job = Job(Query(active=True))
    job.start().stop()
    job.lease.release.assert_called()


def test_micro_batch_that_begins_while_the_job_is_stopped_is_refused() -> None:
    class Beginning(Query):
        def stop(self) -> None:
            if self._active:  # the micro-batch stops the query once more
                self._active = False
                job.handle.write_batch(Mock(), 0)

    job = Job(Beginning(active=True))
    job.start().stop()
    job.writer.write.assert_not_called()
    job.checkpoint.note_unwritten.assert_called_once_with(None)


def test_micro_batch_that_begins_just_before_a_stop_is_completed() -> None:
    class Beginning(Query):
        def stop(self) -> None:
            assert [*looks] == [], "it runs"
            self._active = False

    class Status(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            return next(looks, False)

    looks = iter([False, True, True])  # whether a micro-batch runs
    job = Job(Beginning(active=True))
    job.query.status = Status()
    handle = job.start()
    handle.stop()
    assert handle.status is JobStatus.STOPPED


def test_old_handle_leaves_the_notes_of_the_next_run_alone() -> None:
    job = Job(Query(active=True))
    job.writer.write.return_value = TaskReport()
    handle = job.start()
    handle.write_batch(Mock(), 3)
    job.query._active = False
    handle.await_termination()
    handle.stop()
    job.checkpoint.note_unwritten.assert_called_once_with(3)


def test_failure_is_reported_even_if_the_checkpoint_cannot_be_read() -> None:
    job = Job(Query())
    handle = job.start()
    job.writer.write.side_effect = UserFunctionError(
        operator="out", callback="process_record", subtask=0, location="main.py:7", cause_type="E", cause_message="no"
    )
    job.checkpoint.note_failure.side_effect = OSError("unreachable")
    with pytest.raises(UserFunctionError):
        handle.write_batch(Mock(), 0)
    assert "To continue, do one of these" in str(handle.exception())


class Batch:
    """A batch job that runs until ``end`` is set."""

    def __init__(self) -> None:
        self.end = threading.Event()
        self.plan = plan_in(RuntimeExecutionMode.BATCH)
        self.writer = Mock(files=[], writes_to=None)
        self.writer.write.side_effect = self._write
        self.handle = BatchJob(self.plan, Mock(), self.writer, Mock(), SystemClock(), JobListeners(()))

    def _write(self, *_: object) -> TaskReport:
        self.end.wait()
        return TaskReport()

    @property
    def sink(self) -> Operator:
        return next(operator for operator in self.plan.operators if operator.kind is OperatorKind.SINK)


@pytest.fixture
def batch() -> Iterator[Batch]:
    batch = Batch()
    yield batch
    batch.end.set()
    batch.handle._thread.join()


def test_batch_job_shows_its_status(batch: Batch) -> None:
    assert repr(batch.handle) == "<job 'words': RUNNING>"
    batch.end.set()
    assert batch.handle.await_termination() is True
    assert repr(batch.handle) == "<job 'words': FINISHED>"


def test_batch_job_has_no_savepoints(batch: Batch) -> None:
    for take in (batch.handle.savepoint, batch.handle.stop_with_savepoint):
        with pytest.raises(ConfigurationError, match="'words' is a BATCH job, which has no savepoints"):
            take("unused")


@pytest.mark.parametrize(
    ("writing", "said"), [(True, "the function of the sink .*out.* has not returned"), (False, "")]
)
def test_batch_job_that_cannot_be_cancelled_says_what_runs(
    batch: Batch, monkeypatch: pytest.MonkeyPatch, writing: bool, said: str
) -> None:
    monkeypatch.setattr(base_job, "_CANCEL_SECONDS", 0.01)
    batch.writer.writes_to = batch.sink if writing else None
    batch.writer.tasks.running.return_value = []
    with pytest.raises(JobError, match=f"'words' was cancelled but has not ended: {said}"):
        batch.handle.stop(timedelta(0))
