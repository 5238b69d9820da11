"""The handle of a batch job."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from os import PathLike
from typing import NoReturn

from pyspark.sql import DataFrame

from dsv2.arguments import as_seconds
from dsv2.clock import Clock
from dsv2.dead_letters.store import LetterWriter
from dsv2.errors import ConfigurationError, Dsv2Error, JobError, UserFunctionError
from dsv2.graph import Plan
from dsv2.graph.skips import warn_of_missed_skips
from dsv2.job import JobProgress, JobResult, JobStatus
from dsv2.program.unblocking import skipped_in
from dsv2.runtime.report.ending_job import EndingJob
from dsv2.runtime.report.job_waiting import Keeper, Waiting
from dsv2.runtime.report.ways_out import TO_TRACE, with_ways_out
from dsv2.tracebacks import short_traceback
from dsv2.unfinished import asked
from runtime_spark.dead_letters import letters_in
from runtime_spark.failures import job_failure
from runtime_spark.job_group import JobGroup
from runtime_spark.job_reports import JobReports
from runtime_spark.job_waiting import running_in
from runtime_spark.passages import PassedReports
from runtime_spark.sinks import SinkWriter

__all__ = ("BatchJob",)

_CANCEL_SECONDS = 20.0  # Spark kills a worker that does not end its task within two seconds
_CANCEL_INTERVAL_SECONDS = 0.2


class BatchJob(EndingJob):
    """``JobHandle`` of a batch job, which runs in its own thread."""

    def __init__(
        self,
        plan: Plan,
        frames: DataFrame,
        writer: SinkWriter,
        letters: LetterWriter | None,
        clock: Clock,
        passed_reports: PassedReports | None = None,
    ) -> None:
        """Create the handle.

        ``letters``: Writes the dead letters that nothing reads; None if there are none.
        ``passed_reports``: The reports of subtasks before a DataFrame. None (default): there are none.
        """
        self._passed_reports = passed_reports
        self._plan = plan
        self._frames = frames
        self._writer = writer
        self._letters = letters
        self._clock = clock
        self._began = self._ended = clock.now_ms()
        self._reports = JobReports(plan, ())
        self._failure: Dsv2Error | None = None
        self._cancelled = False
        self._spark = frames.sparkSession
        self._group = JobGroup(self._spark, plan.job_name)
        self._thread = threading.Thread(target=self._run, name=f"dsv2-{plan.job_name}", daemon=True)
        self._thread.start()
        self._keeper = Keeper(self._ends_within)
        self._keeper.start()

    def _ends_within(self, seconds: float | None) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._group.add_thread()
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
            for sink in self._writer.files:
                sink.publish()
                sink.finish()
            reports = [report for report in written if "uid" in report]
            self._reports.add(0, reports)
            warn_of_missed_skips(self._plan, skipped_in(reports))
        except Exception as error:
            if not self._cancelled:
                self._failure = self._failure_of(error)
        self._ended = self._clock.now_ms()

    def _failure_of(self, error: Exception) -> Dsv2Error:
        failure = job_failure(error, self._plan.job_name, self._writer.tasks)
        if not isinstance(failure, UserFunctionError):
            return failure
        return with_ways_out(failure, self._plan, [], "" if self._plan.traces else TO_TRACE)

    def __repr__(self) -> str:
        return f"<job {self._plan.job_name!r}: {self.status.value}>"

    @property
    def status(self) -> JobStatus:
        """Running, finished, cancelled or failed."""
        if self._thread.is_alive():
            return JobStatus.RUNNING
        if self._cancelled:
            return JobStatus.STOPPED
        return JobStatus.FINISHED if self._failure is None else JobStatus.FAILED

    @property
    def progress(self) -> JobProgress:
        """Empty until the end: a batch job reports once."""
        return self._reports.progress()

    def stop(self, timeout: timedelta | None = None) -> None:
        """Wait for the end, or cancel the job after ``timeout``: see ``JobHandle``."""
        asked(self)
        seconds = as_seconds(timeout, "timeout")
        waiting = Waiting(self._plan.job_name, self._what_runs)
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._thread.is_alive() and (deadline is None or time.monotonic() < deadline):
            self._thread.join(1.0 if deadline is None else min(1.0, deadline - time.monotonic()))
            waiting.log()
        if self._thread.is_alive():
            self._cancel()

    def _cancel(self) -> None:
        self._cancelled = True
        deadline = time.monotonic() + _CANCEL_SECONDS
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._group.cancel()  # repeatedly, because queries that are still being planned have no Spark job yet
            self._thread.join(_CANCEL_INTERVAL_SECONDS)
        if self._thread.is_alive():
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
        if not self._thread.is_alive():
            asked(self)
        return self._failure

    @short_traceback
    def result(self) -> JobResult:
        """Wait for the end and return the result. Raises the error that the job failed with."""
        self.await_termination()
        return JobResult(self._plan.job_name, timedelta(milliseconds=self._ended - self._began), self.progress)
