"""The parts of job handles that do not depend on the runtime."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from datetime import timedelta
from os import PathLike

from dsv2.base.clock import Clock
from dsv2.checks.arguments import as_seconds
from dsv2.checks.tracebacks import short_traceback
from dsv2.errors import ConfigurationError, Dsv2Error, JobError
from dsv2.graph import Plan
from dsv2.jobs.handle import JobResult, JobStatus
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.unfinished_jobs import note_observed
from dsv2.jobs.watermark_report import WatermarkReport, report_watermarks
from dsv2.plan_view.view import view_of
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.report.job_waiting import Keeper, Waiting, slice_until

_CANCEL_SECONDS = 20.0  # Spark kills a worker that does not end its task within two seconds


class BaseJob(ABC):
    """Base class of all job handles, which are described by ``JobHandle``."""

    def __init__(self, plan: Plan, clock: Clock) -> None:
        self._plan = plan
        self._clock = clock
        self._began = self._ended = clock.now_ms()
        self._failure: Dsv2Error | None = None
        self._stopped = False
        self._keeper = Keeper(self._ends_within)

    def __repr__(self) -> str:
        return f"<job {self._plan.job_name!r}: {self.status.value}>"

    @property
    def plan(self) -> Plan:
        """The plan of the job."""
        return self._plan

    @property
    def status(self) -> JobStatus:
        """Running, finished, stopped or failed."""
        if not self._is_over():
            return JobStatus.RUNNING
        if self._found_failure() is not None:
            return JobStatus.FAILED
        return JobStatus.STOPPED if self._was_stopped() else JobStatus.FINISHED

    @property
    @abstractmethod
    def progress(self) -> JobProgress:
        """The progress as of the last micro-batch."""

    @short_traceback
    def watermarks(self, identifier: str = "event-time", operator: str | None = None) -> WatermarkReport:
        """Report what holds a watermark back; see ``JobHandle``."""
        return report_watermarks(view_of(self._plan), self.progress, self._now_ms, identifier, operator)

    @short_traceback
    def await_termination(self, timeout: timedelta | None = None) -> bool:
        """Wait until the job ends; False if ``timeout`` passed first. Raises the error that the job failed with."""
        seconds = as_seconds(timeout, "timeout")
        with self._keeper.waiting():
            if not self._ends_within(seconds):
                return False
        self._conclude()
        note_observed(self)
        if (failure := self._found_failure()) is not None:
            raise failure
        return True

    @abstractmethod
    def stop(self, timeout: timedelta | None = None) -> None:
        """End the job between two micro-batches, or within one after ``timeout``: see ``JobHandle``."""

    @short_traceback
    def savepoint(self, path: str | PathLike[str]) -> str:
        """Take a savepoint between two micro-batches, or where the job has stopped; see ``JobHandle``."""
        return self._take_savepoint(path, stop=False)

    @short_traceback
    def stop_with_savepoint(self, path: str | PathLike[str]) -> str:
        """Stop the job between two micro-batches, and take a savepoint; see ``JobHandle``."""
        return self._take_savepoint(path, stop=True)

    def exception(self) -> Dsv2Error | None:
        """Return the error that the job failed with, or None."""
        if self._is_over():
            note_observed(self)
        return self._found_failure()

    @short_traceback
    def result(self) -> JobResult:
        """Wait for the end and return the result. Raises the error that the job failed with."""
        note_observed(self)
        self.await_termination()
        return JobResult(self._plan.job_name, timedelta(milliseconds=self._ended - self._began), self.progress)

    @property
    def _now_ms(self) -> int:
        """The time in the job, in ms."""
        return self._clock.now_ms()

    @abstractmethod
    def _is_over(self) -> bool:
        """Return whether nothing of the job runs any more."""

    @abstractmethod
    def _ends_within(self, seconds: float | None) -> bool:
        """Wait for the end, no longer than ``seconds`` (None: without a limit). Returns whether it has come."""

    def _conclude(self) -> None:  # noqa: B027 - optional
        """Do what remains to be done at the end of the job. Called by those who have waited for it."""

    def _was_stopped(self) -> bool:
        """Return whether the job ended before its end of input."""
        return self._stopped

    def _found_failure(self) -> Dsv2Error | None:
        """Return the error that the job failed with, as far as it is known."""
        return self._failure

    def _take_savepoint(self, path: str | PathLike[str], *, stop: bool) -> str:
        """Take a savepoint. ``stop``: Whether the job ends there. Jobs with savepoints override this."""
        raise ConfigurationError(f"The job {self._plan.job_name!r} is a BATCH job, which has no savepoints.")

    def _cancel(self) -> None:
        self._keeper.give_up()
        if not self._cancelled_within(_CANCEL_SECONDS):
            raise JobError(f"Job {self._plan.job_name!r} was cancelled but has not ended: {self._what_runs()}.")

    @abstractmethod
    def _cancelled_within(self, seconds: float) -> bool:
        """Cancel the job, and wait for its end no longer than ``seconds``. Returns whether it has come."""

    @abstractmethod
    def _what_runs(self) -> str:
        """Describe what has not returned."""


class ThreadJob(BaseJob):
    """A job that runs in one thread of this process. ``listeners``: Called by this thread."""

    def __init__(self, plan: Plan, clock: Clock, listeners: JobListeners) -> None:
        super().__init__(plan, clock)
        self._listeners = listeners
        self._over = threading.Event()
        self._thread = threading.current_thread()
        """The thread that runs the job."""

    def stop(self, timeout: timedelta | None = None) -> None:
        """End the job between two micro-batches, or within one after ``timeout``: see ``JobHandle``."""
        note_observed(self)
        seconds = as_seconds(timeout, "timeout")
        self._request_stop()
        if self._is_own_thread:  # a sink or a listener has called this; the job cannot wait for itself
            return
        deadline = None if seconds is None else time.monotonic() + seconds
        waiting = Waiting(self._plan.job_name, self._what_runs)
        while not self._ends_within(slice_until(deadline)):
            waiting.log()
            if deadline is not None and time.monotonic() >= deadline:
                self._cancel()
                return

    def _request_stop(self) -> None:
        """Ask the thread to end the job as soon as it can stop. It cannot by default."""

    def _is_over(self) -> bool:
        return self._over.is_set()

    @property
    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread and not self._is_over()

    def _ends_within(self, seconds: float | None) -> bool:
        return self._listeners.await_ended(seconds)

    def _end(self) -> None:
        """Called by the thread when the job has ended."""
        self._ended = self._clock.now_ms()
        self._over.set()
        self._listeners.ended(self)
