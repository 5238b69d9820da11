"""The handle of a local job."""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from types import MappingProxyType

from dsv2.base.log_scope import LogScope, in_scope
from dsv2.errors import ConfigurationError, Dsv2Error, JobError, UserFunctionError
from dsv2.graph.error_policies import with_policies
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.unfinished_jobs import note_observed
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.local.execution import Execution, JobStart
from dsv2.local.live_state import live_state
from dsv2.local.restarts import Restarts
from dsv2.local.restoration import on_disk
from dsv2.local.savepoints import take
from dsv2.model.context import RuntimeExecutionMode
from dsv2.model.error_policy import ErrorPolicy
from dsv2.runtime.report.base_job import ThreadJob
from dsv2.runtime.report.remedies import TO_TRACE, with_remedies
from dsv2.savepoint.live_state import LiveState, QueryableHandle
from dsv2.savepoint.writer import check_unused
from dsv2.views.notebook import NotebookHandle

_AT_EXIT_SECONDS = 5.0
_LOG = logging.getLogger("dsv2.job")


class LocalJob(ThreadJob, QueryableHandle, NotebookHandle):
    """``JobHandle`` of a local job, which runs in the thread of the caller or in one of its own.

    ``stop`` with a ``timeout`` cancels a micro-batch between two batches of records: a function that blocks cannot be
    interrupted.
    """

    def __init__(
        self,
        prepare: Callable[[int, Mapping[str, ErrorPolicy]], JobStart],
        checkpoint: LocalCheckpoint | None,
        restarts: Restarts,
    ) -> None:
        """Prepare the first run.

        Args:
            prepare: Prepares a run, given the number of restarts before it, and other error policies of operators.
            checkpoint: The checkpoint, which the job releases when it ends. None: there is none.
            restarts: The restarts after failures.
        """
        self._start = start = prepare(0, {})
        self._execution = Execution(start)
        super().__init__(start.plan, start.clock, start.listeners)
        self._prepare = prepare
        self._checkpoint = checkpoint
        self._restarts = restarts
        self._control = start.control
        self._policies: dict[str, ErrorPolicy] = {}  # others than those of the program, by uid
        self._before: JobProgress | None = None  # when it was restarted last
        self._has_own_thread = False
        self._states: tuple[JobStart, LiveState] | None = None  # of the last run whose state was read

    def run(self) -> None:
        """Run the job in this thread. Exceptions that are not errors of the job, such as Ctrl-C, are raised."""
        with in_scope(LogScope(self._plan.job_name)):
            self._run_to_end()

    def _run_to_end(self) -> None:
        try:
            self._listeners.started(self, self._plan)
            failure = self._failure_of(self._run)
            while self._begins_again(failure):
                failure = self._failure_of(self._run_again)
            self._failure = failure
        except BaseException:
            self._stopped = True
            raise
        finally:
            if self._checkpoint is not None:
                self._checkpoint.release()
            self._control.end()
            self._end()

    def _run(self) -> None:
        self._stopped = self._execution.run()
        self._execution.warn_of_missed_skips()

    def _run_again(self) -> None:
        assert self._checkpoint is not None
        self._checkpoint.reopen()
        self._start = self._prepare(self._restarts.count, self._policies)
        self._execution = Execution(self._start)
        self._run()

    def _failure_of(self, run: Callable[[], None]) -> Dsv2Error | None:
        """Call ``run``, and return the error that the job has failed with; None if it has not."""
        failure: Dsv2Error
        try:
            run()
            return None
        except UserFunctionError as error:
            hint = "" if self._plan.traces else TO_TRACE
            failure = with_remedies(error, self._plan, self._execution.ranges_read(), hint)
            failure.__cause__ = error.__cause__
        except Dsv2Error as error:
            failure = error
        except BaseException as error:
            if not (self._has_own_thread or (self._restarts.are_enabled and isinstance(error, Exception))):
                raise
            failure = JobError(f"Job {self._plan.job_name!r} failed: {type(error).__qualname__}: {error}")
            failure.__cause__ = error
        return failure

    def restart(self, policies: Mapping[str, ErrorPolicy] = MappingProxyType({})) -> None:
        """Begin again from the checkpoint between two micro-batches (``RestartableJob``)."""
        if self._checkpoint is None:
            raise ConfigurationError(
                f"The job {self._plan.job_name!r} has no checkpoint_location from which it could begin again."
            )
        changed = {**self._policies, **policies}
        with_policies(self._plan, changed)  # to find out whether they are possible
        self._policies = changed
        self._control.begin_again()

    def _begins_again(self, failure: Dsv2Error | None) -> bool:
        if failure is not None:
            return self._awaits_restart(failure)
        begins_again = self._stopped and self._control.takes_restart()
        if begins_again:
            self._before = replace(self.progress, restarts=self._restarts.count)
        return begins_again

    def _awaits_restart(self, failure: Dsv2Error) -> bool:
        """Wait until the job may be restarted. Returns False if it is not restarted, or was stopped meanwhile."""
        now_ms = self._clock.now_ms()
        if self._control.is_stopping or (delay_ms := self._restarts.delay_ms(failure, now_ms)) is None:
            return False
        self._before = replace(self.progress, restarts=self._restarts.count)
        _LOG.error(
            "Job %r has failed. Restart %d begins from its last checkpoint in %s s.",
            self._plan.job_name,
            self._restarts.count,
            delay_ms / 1000,
            exc_info=failure,
        )
        self._listeners.restarting(failure)
        while self._control.waited(now_ms + delay_ms, self._clock):
            pass
        return not self._control.is_stopping

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
        before, progress = self._before, self._execution.progress
        if before is not None and (progress.batch_id < 0 or progress.restarts < before.restarts):
            return before
        return progress

    @property
    def batch_ms(self) -> int:
        """The time in ms since the running micro-batch began; 0 between micro-batches."""
        return self._execution.batch_ms

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

    def _live_state(self) -> LiveState:
        start, found = self._start, self._states
        if found is None or found[0] is not start:
            found = self._states = start, live_state(start)
        return found[1]

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
            take(self._plan, run, self._start.begun.record, batch_id, folder)
            if stop:
                self._control.stop()
            return folder.path

        written = self._control.between_batches(write)
        if stop:
            self.stop()
        return written
