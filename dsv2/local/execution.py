"""One run of a local job, from its beginning to its end."""

from __future__ import annotations

import random
from uuid import uuid4

from dsv2.base.log_scope import LogScope, in_scope
from dsv2.errors import CorruptDataError
from dsv2.file_log.ownership import OutputOwner
from dsv2.graph.record_skips import warn_of_missed_skips
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.progress_log import ProgressLog
from dsv2.local.batches import MicroBatchRunner, Outcome, Recorder
from dsv2.local.indexed_reader import Reading
from dsv2.local.restoration import State
from dsv2.local.run import CancelledError, LocalRun
from dsv2.local.savepoints import restore
from dsv2.local.sinks import LocalSinks
from dsv2.local.start import JobStart
from dsv2.model.resource import resources_in_use
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.runtime.operator.callback_limit import callback_limit
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.state.timers import BatchTime
from dsv2.sinks import SinkRunInfo


class Execution:
    """Runs a job from its beginning to its end. Releases its checkpoint then."""

    def __init__(self, start: JobStart) -> None:
        self._start = start
        self._plan = start.plan
        self._begun = begun = start.begun
        self._checkpoint = checkpoint = start.checkpoint
        self._time = BatchTime(max(start.clock.now_ms(), begun.now_ms))
        self._log = None if checkpoint is None else ProgressLog(checkpoint.folder, begun.batch_id, start.configuration)
        before = None if self._log is None else self._log.before
        is_new = begun.is_new and begun.state is None
        self._reports = JobReports(start.plan, before=before, is_new=is_new, in_portions=False)
        self._run: LocalRun | None = None
        self._batches: MicroBatchRunner | None = None
        self.has_ended = False
        """True if all input has been processed to its end."""

    @property
    def progress(self) -> JobProgress:
        """The progress as of the last micro-batch."""
        return self._reports.progress()

    @property
    def now_ms(self) -> int:
        """The time in the job, in ms."""
        return self._start.clock.now_ms() if self._batches is None else self._batches.now_ms

    @property
    def state(self) -> tuple[LocalRun, int]:
        """The subtasks, and the last micro-batch. Only to be used between two micro-batches, or at the end."""
        assert self._run is not None
        assert self._batches is not None
        return self._run, self._batches.last_batch

    def ranges_read(self) -> list[str]:
        """Describe what the last micro-batch has read of each source."""
        return [] if self._run is None else self._run.ranges_read()

    def warn_of_missed_skips(self) -> None:
        """Warn about each record of ``skip_records`` that the job has not read."""
        if self._start.unblocking is not None:
            self._start.unblocking.warn_of_missed(self._plan)
        elif self._run is not None:
            warn_of_missed_skips(self._plan, self._run.skipped())

    def run(self) -> bool:
        """Run to the end of the input, or until the run stops before it. Returns whether it has stopped.

        Raises:
            Dsv2Error: The job failed.
        """
        try:
            with resources_in_use(), in_scope(LogScope(self._plan.job_name)):
                outcome = self._run_all()
        finally:
            if self._checkpoint is not None:
                self._checkpoint.release()
        self.has_ended = outcome is Outcome.ENDED
        return outcome is Outcome.STOPPED

    def _run_all(self) -> Outcome:
        start, plan = self._start, self._plan
        run = self._run = self._new_run()
        if self._log is not None:
            self._log.add_job(plan, start.clock.now_ms(), RuntimeView("local", one_process=True))
        run_id = str(uuid4())
        sinks = self._new_sinks(run_id)
        recorder = Recorder(start, run, sinks, run_id)
        self._batches = MicroBatchRunner(start, run, recorder, self._time, self._reports, self._log)
        try:
            with callback_limit(plan.callback_timeout_ms, may_exit=False):
                sinks.begin(self._begun.batch_id)
                if start.unblocking is not None:
                    start.unblocking.write()
                recorder.complete_earlier()
                if self._begun.state is None:
                    run.open()
                else:
                    self._restore(run, self._begun.state)
                outcome = Outcome.ENDED if self._begun.complete else self._batches.run()
                sinks.roll(at_end=True)
        except CancelledError:
            run.close()
            return Outcome.STOPPED
        except BaseException:
            run.close()
            raise
        run.close_sources()
        return outcome

    def _restore(self, run: LocalRun, state: State) -> None:
        try:
            restore(self._plan, run, state.program, state.rows, self._begun.record.sources)
        except CorruptDataError as error:
            raise CorruptDataError(f"{state.place}: {error}") from error

    def _new_run(self) -> LocalRun:
        start = self._start
        return LocalRun(
            self._plan,
            self._time,
            start.clock,
            random.Random(start.seed),
            fast=start.fast,
            positions=self._begun.record.sources,
            reading=Reading(start.trigger.interval_ms is None, start.trigger.target_batch_ms),
            is_cancelled=lambda: start.control.is_cancelled,
        )

    def _new_sinks(self, run_id: str) -> LocalSinks:
        begun, clock, job_id = self._begun, self._start.clock, self._begun.record.job_id
        if self._checkpoint is None:
            return LocalSinks(self._plan, job_id, SinkRunInfo(job_id, begun.batch_id), clock)
        first = begun.batch_id if begun.pending is None else begun.pending.batch_id
        runs = () if begun.pending is None else tuple(begun.pending.runs)
        owner = OutputOwner(job_id, begun.checkpoint_id)
        return LocalSinks(self._plan, job_id, SinkRunInfo(run_id, first, runs), clock, owner)
