"""The handle of a batch job."""

from __future__ import annotations

import threading
import time

from pyspark.sql import DataFrame

from dsv2.base.clock import Clock, SystemClock
from dsv2.checkpoint.failed_batch import skipped_in
from dsv2.dead_letters.store import LetterWriter
from dsv2.errors import Dsv2Error, UserFunctionError
from dsv2.graph import Plan
from dsv2.graph.record_skips import warn_of_missed_skips
from dsv2.jobs.progress import JobProgress
from dsv2.runtime.report.base_job import ThreadJob
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.report.remedies import TO_TRACE, with_remedies
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.views.notebook import NotebookHandle
from runtime_spark.frames.failures import job_failure
from runtime_spark.job.task_times import batch_phases, task_times, what_runs
from runtime_spark.platform.job_group import job_group
from runtime_spark.sink.sinks import SinkWriter

_CANCEL_INTERVAL_SECONDS = 0.2


class BatchJob(ThreadJob, NotebookHandle):
    """``JobHandle`` of a batch job, which runs in its own thread. ``stop`` waits for its end, or cancels it."""

    def __init__(
        self,
        plan: Plan,
        frames: DataFrame,
        writer: SinkWriter,
        letters: LetterWriter,
        clock: Clock,
        listeners: JobListeners,
    ) -> None:
        """Create the handle.

        ``letters``: Writes the dead letters that nothing reads.
        """
        super().__init__(plan, clock, listeners)
        self._frames = frames
        self._writer = writer
        self._letters = letters
        self._reports = JobReports(plan, in_portions=True)
        self._system = SystemClock()  # as the clocks of the workers
        self._spark = frames.sparkSession
        self._group = job_group(self._spark, plan.job_name)
        self._thread = threading.Thread(target=self._run, name=f"dsv2-{plan.job_name}", daemon=True)
        self._thread.start()
        self._keeper.start()

    def _run(self) -> None:
        try:
            self._run_query()
        finally:
            self._end()

    def _run_query(self) -> None:
        self._group.add_thread()
        self._listeners.started(self, self._plan)
        started_at = self._system.now_ms()
        try:
            for sink in self._writer.files:
                sink.begin(0)
            written = self._writer.write(self._frames, 0)
            self._letters.write(0, written.letters)
            written_at = self._system.now_ms()
            for sink in self._writer.files:
                sink.publish()
                sink.finish()
            self._complete(written.subtasks, started_at, written_at)
            warn_of_missed_skips(self._plan, skipped_in(written.subtasks))
        except Exception as error:
            if not self._stopped:
                self._failure = self._failure_of(error)
            return
        self._listeners.progress(self.progress)

    def _complete(self, reports: list[SubtaskReport], started_at: int, written_at: int) -> None:
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
        return with_remedies(failure, self._plan, [], "" if self._plan.traces else TO_TRACE)

    @property
    def progress(self) -> JobProgress:
        """Empty until the end: a batch job reports once."""
        return self._reports.progress()

    def _cancelled_within(self, seconds: float) -> bool:
        self._stopped = True
        deadline = time.monotonic() + seconds
        self._group.cancel()
        while not (ended := self._ends_within(_CANCEL_INTERVAL_SECONDS)) and time.monotonic() < deadline:
            self._group.cancel()  # repeatedly, because queries that are still being planned have no Spark job yet
        return ended

    def _what_runs(self) -> str:
        return what_runs(self._writer, self._spark, "the batch job is running")
