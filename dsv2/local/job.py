"""The handle of a local job."""

from __future__ import annotations

import atexit
import threading
from os import PathLike

from dsv2.errors import ConfigurationError, Dsv2Error, JobError, UserFunctionError
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.unfinished_jobs import note_observed
from dsv2.local.execution import Execution, JobStart
from dsv2.local.restoration import on_disk
from dsv2.local.savepoints import take
from dsv2.model.context import RuntimeExecutionMode
from dsv2.runtime.report.base_job import ThreadJob
from dsv2.runtime.report.remedies import TO_TRACE, with_remedies
from dsv2.savepoint.writer import check_unused
from dsv2.views.notebook import NotebookHandle

_AT_EXIT_SECONDS = 5.0


class LocalJob(ThreadJob, NotebookHandle):
    """``JobHandle`` of a local job, which runs in the thread of the caller or in one of its own.

    ``stop`` with a ``timeout`` cancels a micro-batch between two batches of records: a function that blocks cannot be
    interrupted.
    """

    def __init__(self, start: JobStart, execution: Execution) -> None:
        super().__init__(start.plan, start.clock, start.listeners)
        self._begun = start.begun
        self._control = start.control
        self._execution = execution
        self._has_own_thread = False

    def run(self) -> None:
        """Run the job in this thread. Exceptions that are not errors of the job, such as Ctrl-C, are raised."""
        try:
            self._listeners.started(self, self._plan)
            self._stopped = self._execution.run()
            self._execution.warn_of_missed_skips()
        except UserFunctionError as error:
            hint = "" if self._plan.traces else TO_TRACE
            self._failure = with_remedies(error, self._plan, self._execution.ranges_read(), hint)
            self._failure.__cause__ = error.__cause__
        except Dsv2Error as error:
            self._failure = error
        except BaseException as error:
            if not self._has_own_thread:
                self._stopped = True
                raise
            self._failure = JobError(f"Job {self._plan.job_name!r} failed: {type(error).__qualname__}: {error}")
            self._failure.__cause__ = error
        finally:
            self._control.end()
            self._end()

    def start(self, *, ends: bool) -> None:
        """Run the job in a thread. ``ends``: Whether it ends by itself. The program then does not end before it."""
        atexit.register(self._end_at_exit)
        self._has_own_thread = True
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
        self._over.wait(_AT_EXIT_SECONDS)

    @property
    def progress(self) -> JobProgress:
        """The progress as of the last micro-batch."""
        return self._execution.progress

    @property
    def _now_ms(self) -> int:
        return self._execution.now_ms

    def _request_stop(self) -> None:
        self._control.stop()

    def _cancelled_within(self, seconds: float) -> bool:
        self._control.stop(cancel=True)
        return self._ends_within(seconds)

    def _what_runs(self) -> str:
        return f"a function, source or sink has not returned, in thread 'dsv2-{self._plan.job_name}' of this process"

    def _take_savepoint(self, path: str | PathLike[str], *, stop: bool) -> str:
        if self._plan.mode is RuntimeExecutionMode.BATCH:
            return super()._take_savepoint(path, stop=stop)
        if self._is_own_thread:
            raise ConfigurationError(
                "A savepoint is taken between two micro-batches, so a sink or a listener cannot take one."
            )
        folder = on_disk(path)
        check_unused(folder)

        def write() -> str:
            if self._failure is not None:
                note_observed(self)
                raise self._failure
            if self._execution.has_ended:
                raise ConfigurationError(
                    f"The job {self._plan.job_name!r} has reached the end of its input, so there is nothing to "
                    f"continue. A savepoint of a local job needs input that stops before its end, or an unbounded "
                    f"source."
                )
            run, batch_id = self._execution.state
            take(self._plan, run, self._begun.record, batch_id, folder)
            if stop:
                self._control.stop()
            return folder.path

        written = self._control.between_batches(write)
        if stop:
            self.stop()
        return written
