"""Completes the progress of a streaming job when Spark has committed a micro-batch, and passes it on."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dsv2.graph import Plan
from dsv2.jobs.handle import JobHandle
from dsv2.jobs.progress_log import ProgressLog
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.report.job_reports import JobReports, ReportedBatch
from runtime_spark.job.task_times import SparkTimes, TaskTimes, batch_phases

_POLL_SECONDS = 0.05  # for the end of a micro-batch
_END_POLL_SECONDS = 0.5  # for the end of the job
_WAITING = 100  # micro-batches; a slow listener misses older ones


@dataclass(frozen=True)
class QueryView:
    """The query as the thread sees it.

    Attributes:
        is_over: Whether there is no further micro-batch.
        times: Returns what Spark has measured of a micro-batch, given Spark's number for it; None: not yet.
        settle: Called when the job is over. Then its status must be final.
    """

    is_over: Callable[[], bool]
    times: Callable[[int], SparkTimes | None]
    settle: Callable[[], None]


@dataclass(frozen=True)
class WrittenBatch:
    """A micro-batch that has been written to the sinks, at ``written_at`` ms. ``number``: Spark's number for it."""

    number: int
    reported: ReportedBatch
    tasks: TaskTimes
    written_at: int


class ProgressThread(threading.Thread):
    """A thread that calls the listeners of a job and writes its progress, so that this does not delay the job."""

    def __init__(
        self, plan: Plan, reports: JobReports, log: ProgressLog, listeners: JobListeners, runtime: RuntimeView
    ) -> None:
        """Create the thread.

        Args:
            plan: The plan of the job.
            reports: Combines what its subtasks report.
            log: Stores its progress.
            listeners: Receive its progress.
            runtime: How it runs, for the stored explanation of the plan.
        """
        super().__init__(name=f"dsv2-progress-{plan.job_name}", daemon=True)
        self._job: JobHandle
        self._query: QueryView
        self._started_at_ms = 0
        self._plan = plan
        self._reports = reports
        self._log = log
        self._listeners = listeners
        self._runtime = runtime
        self._levels = max(plan.depths.values(), default=0)
        self._changed = threading.Condition()
        self._written: deque[WrittenBatch] = deque(maxlen=_WAITING)
        self._ending = False

    def begin(self, job: JobHandle, query: QueryView, started_at_ms: int) -> None:
        """Start the thread, for a job that started at ``started_at_ms`` since the epoch."""
        self._job = job
        self._query = query
        self._started_at_ms = started_at_ms
        self.start()

    def add(self, batch: WrittenBatch) -> None:
        """Called when a micro-batch has been written. Spark commits it next."""
        with self._changed:
            self._written.append(batch)
            self._changed.notify()

    def end(self) -> None:
        """Wait until the listeners know that the job has ended. Called when it is over, also by listeners."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self.is_alive() and threading.current_thread() is not self:
            self.join()

    def run(self) -> None:
        try:
            self._listeners.started(self._job, self._plan)
            self._log.add_job(self._plan, self._started_at_ms, self._runtime)
            while (batch := self._next()) is not None:
                if (times := self._await_times(batch.number)) is not None:
                    self._complete(batch, times)
            with contextlib.suppress(Exception):  # those who wait for the job see it
                self._query.settle()
        finally:
            self._listeners.ended(self._job)

    def _next(self) -> WrittenBatch | None:
        """Wait for the next micro-batch. None: the job is over."""
        with self._changed:
            while not self._written:
                if self._ending or self._query.is_over():
                    return self._written.popleft() if self._written else None
                self._changed.wait(_END_POLL_SECONDS)
            return self._written.popleft()

    def _await_times(self, number: int) -> SparkTimes | None:
        """Wait until a micro-batch is complete. None: it has not been completed."""
        while (times := self._query.times(number)) is None:
            if self._query.is_over():
                return self._query.times(number)
            with self._changed:
                self._changed.wait(_POLL_SECONDS)
        return times

    def _complete(self, batch: WrittenBatch, times: SparkTimes) -> None:
        phases = batch_phases(
            self._levels, batch.tasks, planning=times.planning, written_at=batch.written_at, commit=times.commit
        )
        self._reports.complete(batch.reported, times.started_at, times.duration, phases)
        progress = self._reports.progress(batch.reported)
        self._log.add(progress)
        self._listeners.progress(progress)
