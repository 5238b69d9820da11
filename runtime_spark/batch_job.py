"""The handle of a batch job."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import DataFrame

from dsv2.arguments import as_seconds
from dsv2.clock import Clock, SystemClock
from dsv2.dead_letters.store import LetterWriter
from dsv2.errors import ConfigurationError, Dsv2Error, JobError, UserFunctionError
from dsv2.graph import Plan
from dsv2.graph.skips import warn_of_missed_skips
from dsv2.job import JobResult, JobStatus
from dsv2.job_display import DisplayedJob
from dsv2.program.unblocking import skipped_in
from dsv2.progress import JobProgress
from dsv2.runtime.report.ending_job import EndingJob
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.report.job_waiting import Keeper, Waiting, slice_until
from dsv2.runtime.report.watermarks import watermarks_of
from dsv2.runtime.report.ways_out import TO_TRACE, with_ways_out
from dsv2.tracebacks import short_traceback
from dsv2.unfinished import asked
from runtime_spark.dead_letters import letters_in
from runtime_spark.failures import job_failure
from runtime_spark.job_group import job_group
from runtime_spark.job_waiting import running_in
from runtime_spark.passages import PassedReports
from runtime_spark.sinks import SinkWriter
from runtime_spark.task_times import batch_phases, task_times

if TYPE_CHECKING:
    from dsv2.watermark_report import WatermarkReport

__all__ = ("BatchJob",)

_CANCEL_SECONDS = 20.0  # Spark kills a worker that does not end its task within two seconds
_CANCEL_INTERVAL_SECONDS = 0.2


class BatchJob(EndingJob, DisplayedJob):
    """``JobHandle`` of a batch job, which runs in its own thread."""

    def __init__(
        self,
        plan: Plan,
        frames: DataFrame,
        writer: SinkWriter,
        letters: LetterWriter | None,
        clock: Clock,
        listeners: JobListeners,
        passed_reports: PassedReports | None = None,
    ) -> None:
        """Create the handle.

        ``letters``: Writes the dead letters that nothing reads; None if there are none.
        ``passed_reports``: The reports of subtasks before a DataFrame. None (default): there are none.
        """
        self._passed_reports = passed_reports
        self._listeners = listeners
        self._plan = plan
        self._frames = frames
        self._writer = writer
        self._letters = letters
        self._clock = clock
        self._began = self._ended = clock.now_ms()
        self._reports = JobReports(plan, in_portions=True)
        self._system = SystemClock()  # as the clocks of the workers
        self._failure: Dsv2Error | None = None
        self._cancelled = False
        self._spark = frames.sparkSession
        self._group = job_group(self._spark, plan.job_name)
        self._is_over = threading.Event()
        self._keeper = Keeper(self._ends_within)
        self._thread = threading.Thread(target=self._run, name=f"dsv2-{plan.job_name}", daemon=True)
        self._thread.start()
        self._keeper.start()

    def _ends_within(self, seconds: float | None) -> bool:
        return self._listeners.await_ended(seconds)

    def _run(self) -> None:
        try:
            self._run_query()
        finally:
            self._ended = self._clock.now_ms()
            self._is_over.set()
            self._listeners.ended(self)

    def _run_query(self) -> None:
        self._group.add_thread()
        self._listeners.started(self, self._plan)
        started_at = self._system.now_ms()
        try:
            for sink in self._writer.files:
                sink.begin(0)
            written = self._writer.write(self._frames, 0)
            if self._passed_reports is not None:
                passed = self._passed_reports.take()
                self._writer.limits.check(passed)
                written = [*passed, *written]
            if self._letters is not None:
                self._letters.write(0, letters_in(written))
            written_at = self._system.now_ms()
            for sink in self._writer.files:
                sink.publish()
                sink.finish()
            reports = [report for report in written if "uid" in report]
            self._complete(reports, started_at, written_at)
            warn_of_missed_skips(self._plan, skipped_in(reports))
        except Exception as error:
            if not self._cancelled:
                self._failure = self._failure_of(error)
            return
        self._listeners.progress(self.progress)

    def _complete(self, reports: list[dict[str, Any]], started_at: int, written_at: int) -> None:
        ended_at = self._system.now_ms()
        tasks = task_times(self._plan, reports, written_at)
        phases = batch_phases(
            max(self._plan.depths.values(), default=0),
            tasks,
            planning=float(max(0, tasks.first - started_at)),
            written_at=written_at,
            commit=float(ended_at - written_at),
        )
        reported = self._reports.add(0, reports, started_at)
        self._reports.complete(reported, started_at, float(ended_at - started_at), phases)

    def _failure_of(self, error: Exception) -> Dsv2Error:
        failure = job_failure(error, self._plan.job_name, self._writer.tasks)
        if not isinstance(failure, UserFunctionError):
            return failure
        return with_ways_out(failure, self._plan, [], "" if self._plan.traces else TO_TRACE)

    def __repr__(self) -> str:
        return f"<job {self._plan.job_name!r}: {self.status.value}>"

    @property
    def plan(self) -> Plan:
        """The plan of the job."""
        return self._plan

    @property
    def status(self) -> JobStatus:
        """Running, finished, cancelled or failed."""
        if not self._is_over.is_set():
            return JobStatus.RUNNING
        if self._cancelled:
            return JobStatus.STOPPED
        return JobStatus.FINISHED if self._failure is None else JobStatus.FAILED

    @property
    def progress(self) -> JobProgress:
        """Empty until the end: a batch job reports once."""
        return self._reports.progress()

    @short_traceback
    def watermarks(self, identifier: str = "event-time", operator: str | None = None) -> WatermarkReport:
        """Report what holds a watermark back; see ``JobHandle``."""
        return watermarks_of(self._plan, self.progress, self._clock.now_ms(), identifier, operator)

    def stop(self, timeout: timedelta | None = None) -> None:
        """Wait for the end, or cancel the job after ``timeout``: see ``JobHandle``."""
        asked(self)
        seconds = as_seconds(timeout, "timeout")
        waiting = Waiting(self._plan.job_name, self._what_runs)
        deadline = None if seconds is None else time.monotonic() + seconds
        if threading.current_thread() is self._thread:  # a listener has called this; the job cannot wait for itself
            return
        while not self._ends_within(slice_until(deadline)):
            waiting.log()
            if deadline is not None and time.monotonic() >= deadline:
                self._cancel()
                return

    def _cancel(self) -> None:
        self._keeper.give_up()
        self._cancelled = True
        deadline = time.monotonic() + _CANCEL_SECONDS
        self._group.cancel()
        while not (ended := self._ends_within(_CANCEL_INTERVAL_SECONDS)) and time.monotonic() < deadline:
            self._group.cancel()  # repeatedly, because queries that are still being planned have no Spark job yet
        if not ended:
            raise JobError(f"Job {self._plan.job_name!r} was cancelled but has not ended: {self._what_runs()}.")

    def _what_runs(self) -> str:
        if (sink := self._writer.writes_to) is not None:
            return f"the function of the sink {sink}, defined at {sink.location}, has not returned"
        return running_in(self._writer.tasks, self._spark, "the batch job is running")

    def savepoint(self, path: str | PathLike[str]) -> NoReturn:
        """Raise ``ConfigurationError``: a batch job has no state to continue from."""
        raise ConfigurationError(f"The job {self._plan.job_name!r} is a BATCH job, which has no savepoints.")

    def stop_with_savepoint(self, path: str | PathLike[str]) -> NoReturn:
        """Raise ``ConfigurationError``, as ``savepoint`` does."""
        self.savepoint(path)

    def exception(self) -> Dsv2Error | None:
        """Return the error that the job failed with, or None."""
        if self._is_over.is_set():
            asked(self)
        return self._failure

    @short_traceback
    def result(self) -> JobResult:
        """Wait for the end and return the result. Raises the error that the job failed with."""
        self.await_termination()
        return JobResult(self._plan.job_name, timedelta(milliseconds=self._ended - self._began), self.progress)
