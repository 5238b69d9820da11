"""The handle of a local job."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from os import PathLike
from typing import TYPE_CHECKING

from dsv2.arguments import as_seconds
from dsv2.clock import Clock
from dsv2.context import RuntimeExecutionMode
from dsv2.errors import ConfigurationError, Dsv2Error, JobError, UserFunctionError
from dsv2.graph import Plan
from dsv2.job import JobResult, JobStatus
from dsv2.job_display import DisplayedJob
from dsv2.local.beginning import Beginning, on_disk
from dsv2.local.control import JobControl
from dsv2.local.execution import Execution
from dsv2.local.savepoints import take
from dsv2.progress import JobProgress
from dsv2.runtime.report.ending_job import EndingJob
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.report.job_waiting import Keeper, Waiting, slice_until
from dsv2.runtime.report.watermarks import watermarks_of
from dsv2.runtime.report.ways_out import TO_TRACE, with_ways_out
from dsv2.savepoint.metadata import Origin
from dsv2.savepoint.writer import check_unused
from dsv2.tracebacks import short_traceback
from dsv2.unfinished import asked

if TYPE_CHECKING:
    from dsv2.watermark_report import WatermarkReport

__all__ = ("LocalJob",)

_CANCEL_SECONDS = 20.0
_AT_EXIT_SECONDS = 5.0


class LocalJob(EndingJob, DisplayedJob):
    """``JobHandle`` of a local job, which runs in the thread of the caller or in one of its own."""

    def __init__(
        self,
        plan: Plan,
        begun: Beginning,
        execution: Execution,
        control: JobControl,
        clock: Clock,
        listeners: JobListeners,
    ) -> None:
        self._listeners = listeners
        self._plan = plan
        self._begun = begun
        self._execution = execution
        self._control = control
        self._clock = clock
        self._began = self._ended = clock.now_ms()
        self._failure: Dsv2Error | None = None
        self._stopped = False
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None  # of its own
        self._runs_in: threading.Thread | None = None
        self._keeper = Keeper(self._ends_within)

    def run(self) -> None:
        """Run the job in this thread. Exceptions that are not errors of the job, such as Ctrl-C, are raised."""
        self._runs_in = threading.current_thread()
        try:
            self._listeners.started(self, self._plan)
            self._stopped = self._execution.run()
            self._execution.warn_of_missed_skips()
        except UserFunctionError as error:
            to_name_it = "" if self._plan.traces else TO_TRACE
            self._failure = with_ways_out(error, self._plan, self._execution.ranges_read(), to_name_it)
            self._failure.__cause__ = error.__cause__
        except Dsv2Error as error:
            self._failure = error
        except BaseException as error:
            if self._thread is None:
                self._stopped = True
                raise
            self._failure = JobError(f"Job {self._plan.job_name!r} failed: {type(error).__qualname__}: {error}")
            self._failure.__cause__ = error
        finally:
            self._ended = self._clock.now_ms()
            self._control.end()
            self._is_over.set()
            self._listeners.ended(self)

    def start(self, *, ends: bool) -> None:
        """Run the job in a thread. ``ends``: Whether it ends by itself. The program then does not end before it."""
        atexit.register(self._end_at_exit)
        self._thread = threading.Thread(target=self._run_in_thread, name=f"dsv2-{self._plan.job_name}", daemon=True)
        self._thread.start()
        if ends:
            self._keeper.start()

    def _run_in_thread(self) -> None:
        self.run()
        atexit.unregister(self._end_at_exit)

    def _end_at_exit(self) -> None:
        # A thread that still runs while Python shuts down could be stopped while it holds the lock of a stream.
        self._control.stop(cancel=True)
        self._is_over.wait(_AT_EXIT_SECONDS)

    def _ends_within(self, seconds: float | None) -> bool:
        return self._listeners.await_ended(seconds)

    def __repr__(self) -> str:
        return f"<job {self._plan.job_name!r}: {self.status.value}>"

    @property
    def plan(self) -> Plan:
        """The plan of the job."""
        return self._plan

    @property
    def status(self) -> JobStatus:
        """Running, finished, stopped or failed."""
        if not self._is_over.is_set():
            return JobStatus.RUNNING
        if self._failure is not None:
            return JobStatus.FAILED
        return JobStatus.STOPPED if self._stopped else JobStatus.FINISHED

    @property
    def progress(self) -> JobProgress:
        """The progress as of the last micro-batch."""
        return self._execution.progress

    @short_traceback
    def watermarks(self, identifier: str = "event-time", operator: str | None = None) -> WatermarkReport:
        """Report what holds a watermark back; see ``JobHandle``."""
        return watermarks_of(self._plan, self.progress, self._execution.now_ms, identifier, operator)

    def stop(self, timeout: timedelta | None = None) -> None:
        """End the job between two micro-batches, or within one after ``timeout``: see ``JobHandle``.

        A micro-batch is cancelled between two batches of records: a function that blocks cannot be interrupted.
        """
        asked(self)
        seconds = as_seconds(timeout, "timeout")
        self._control.stop()
        if self._is_own_thread:  # a sink or a listener has called this; the job cannot wait for itself
            return
        deadline = None if seconds is None else time.monotonic() + seconds
        waiting = Waiting(self._plan.job_name, self._what_runs)
        while not self._ends_within(slice_until(deadline)):
            waiting.log()
            if deadline is not None and time.monotonic() >= deadline:
                self._cancel()
                return

    @property
    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._runs_in and not self._is_over.is_set()

    def _cancel(self) -> None:
        self._keeper.give_up()
        self._control.stop(cancel=True)
        if not self._ends_within(_CANCEL_SECONDS):
            raise JobError(f"Job {self._plan.job_name!r} was cancelled but has not ended: {self._what_runs()}.")

    def _what_runs(self) -> str:
        return f"a function, source or sink has not returned, in thread 'dsv2-{self._plan.job_name}' of this process"

    @short_traceback
    def savepoint(self, path: str | PathLike[str]) -> str:
        """Take a savepoint between two micro-batches, or where the job has stopped; see ``JobHandle``."""
        return self._savepoint(path, lambda: None)

    @short_traceback
    def stop_with_savepoint(self, path: str | PathLike[str]) -> str:
        """Stop the job between two micro-batches, and take a savepoint; see ``JobHandle``."""
        written = self._savepoint(path, self._control.stop)
        self.stop()
        return written

    def _savepoint(self, path: str | PathLike[str], then: Callable[[], None]) -> str:
        if self._plan.mode is RuntimeExecutionMode.BATCH:
            raise ConfigurationError(f"The job {self._plan.job_name!r} is a BATCH job, which has no savepoints.")
        if self._is_own_thread:
            raise ConfigurationError(
                "A savepoint is taken between two micro-batches, so a sink or a listener cannot take one."
            )
        folder = on_disk(path)
        check_unused(folder)

        def write() -> str:
            if self._failure is not None:
                asked(self)
                raise self._failure
            if self._execution.has_ended:
                raise ConfigurationError(
                    f"The job {self._plan.job_name!r} has reached the end of its input, so there is nothing to "
                    f"continue. A savepoint of a local job needs input that stops before its end, or an unbounded "
                    f"source."
                )
            run, batch_id = self._execution.state
            origin = Origin(self._plan.job_name, self._begun.job_id, batch_id)
            take(self._plan, run, self._begun.earlier, self._begun.replays, origin, folder)
            then()
            return folder.path

        return self._control.between_batches(write)

    def exception(self) -> Dsv2Error | None:
        """Return the error that the job failed with, or None."""
        if self._is_over.is_set():
            asked(self)
        return self._failure

    @short_traceback
    def result(self) -> JobResult:
        """Wait for the end and return the result. Raises the error that the job failed with."""
        asked(self)
        self.await_termination()
        return JobResult(self._plan.job_name, timedelta(milliseconds=self._ended - self._began), self.progress)
