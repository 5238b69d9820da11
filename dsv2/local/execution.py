"""One run of a local job: its beginning, its micro-batches, what is stored and written after each, and its end."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from uuid import uuid4

from msgspec.structs import replace

from dsv2.base.clock import Clock, elapsed_ns
from dsv2.base.garbage_collector import frozen_modules, patient_collector
from dsv2.checkpoint.failed_batch import Unblocking, skipped_in
from dsv2.checkpoint.file_folders import folders_of
from dsv2.checkpoint.key_samples import add_samples
from dsv2.checkpoint.record import extended, sinks_of
from dsv2.dead_letters.store import LetterWriter
from dsv2.errors import CorruptDataError
from dsv2.file_log.ownership import OutputOwner
from dsv2.graph import Plan
from dsv2.graph.record_skips import SkippedRecords, warn_of_missed_skips
from dsv2.jobs.configuration import Section
from dsv2.jobs.handle import Trigger, input_is_bounded
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.progress_log import ProgressLog
from dsv2.local.checkpoint import LocalCheckpoint, SinkOutput, StoredBatch
from dsv2.local.control import JobControl
from dsv2.local.restoration import LocalStart, on_disk
from dsv2.local.run import LocalRun
from dsv2.local.savepoints import record_of, restart, restore
from dsv2.local.sinks import LocalSinks, encoded_outputs
from dsv2.local.sources import Reading
from dsv2.local.tasks import CancelledError, LocalTasks
from dsv2.local.workers.messages import WorkerSettings
from dsv2.local.workers.tasks import WorkerTasks, view_of
from dsv2.model.context import RuntimeExecutionMode
from dsv2.model.resource import resources_in_use
from dsv2.runtime.exchange.frames import EmitFrame, Frame
from dsv2.runtime.operator.callback_limit import callback_limit
from dsv2.runtime.operator.job_context import JobContext
from dsv2.runtime.report.failure_limits import FailureLimits
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.report.phases import COMMIT, PLANNING, SINKS
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.state.timers import BatchTime
from dsv2.sinks import SinkRunInfo
from dsv2.sources import Halt


@dataclass(frozen=True)
class JobStart:
    """The parts of one run of a job that its runtime has prepared.

    Attributes:
        plan: The plan.
        begun: Where the run begins.
        checkpoint: The checkpoint. None: there is none.
        letters: Writes the dead letters that nothing reads.
        unblocking: What the checkpoint remembers of records to skip. None: there is no checkpoint.
        seed: The seed of the interleaving of channels.
        sizes: The sizes of micro-batches, in records per source subtask. The last size repeats. Empty: no limit.
        checks: Whether the checks are made.
        durable: Whether micro-batches are forced to the disk.
        clock: The wall clock.
        trigger: When micro-batches begin.
        configuration: All settings of the job, for its checkpoint.
        control: The requests to the job.
        listeners: Receive the progress.
        processes: The number of processes that run subtasks. 1: this process runs them.
        restarts: How often this process has restarted the job before.
    """

    plan: Plan
    begun: LocalStart
    checkpoint: LocalCheckpoint | None
    letters: LetterWriter
    unblocking: Unblocking | None
    seed: int
    sizes: Sequence[int]
    checks: bool
    durable: bool
    clock: Clock
    trigger: Trigger
    configuration: tuple[Section, ...]
    control: JobControl
    listeners: JobListeners
    processes: int
    restarts: int


_FIRST_POLL_MS, _LAST_POLL_MS = 1, 10  # pauses before sources without new data are polled again
_LONGEST_WAIT_MS = 250  # for sources that can wait
_NS_BETWEEN_FILES = 100_000_000  # of progress, which has the last micro-batches
_RESTARTS_BY_ROWS = 4  # every fourth restart is like a start from a savepoint, which is slower


class Outcome(Enum):
    """The end of a run: with all input, with all input that was available at its start, or before that."""

    ENDED = "ended"
    EXHAUSTED = "exhausted"
    STOPPED = "stopped"


class Recorder:
    """Stores each micro-batch in the checkpoint, then writes it to the sinks.

    Without a checkpoint, it only writes to the sinks.
    """

    def __init__(self, start: JobStart, run: LocalRun, sinks: LocalSinks, run_id: str) -> None:
        self._plan = plan = start.plan
        self._run = run
        self._sinks = sinks
        self._run_id = run_id
        self._letters = start.letters
        self._begun = begun = start.begun
        self._checkpoint = start.checkpoint
        self._unblocking = start.unblocking
        self._limits = FailureLimits(plan)
        self._skipped: SkippedRecords = {}
        self._keys = list(begun.record.keys)
        self._sink_records = sinks_of(plan, folders_of(plan, on_disk))

    def complete_earlier(self) -> None:
        """Write the last micro-batch of the earlier run to the sinks, if they may not have it."""
        if (pending := self._begun.pending) is not None:
            assert self._checkpoint is not None
            # With these sinks, so that a crash is not followed by a third program's folders.
            runs = [*pending.runs, self._run_id]
            self._checkpoint.write(replace(pending, sinks=self._sink_records, runs=runs))
            self._sinks.write_again(pending.outputs, self._run.codec, pending.batch_id)
            self._letters.write(pending.batch_id, pending.letters)
            self._letters.record_replays(pending.replays)
            self._checkpoint.mark_written()

    def between_batches(self) -> None:
        """Called from time to time, also without micro-batches."""
        self._sinks.roll()

    def record(self, batch_id: int, now_ms: int) -> None:
        """Called after each micro-batch."""
        frames = [frame for _, found in self._run.take_collected() for frame in found if frame.batch]
        outputs = self._run.tasks.take_outputs()
        report = self._run.report
        self._limits.check(report.subtasks, report.readers)
        self._note_skipped(batch_id)
        measured = self._run.phases.measured
        if self._checkpoint is not None:
            with measured(COMMIT):
                self._checkpoint.write(self._stored(frames, outputs, batch_id, now_ms))
        with measured(SINKS):
            self._sinks.write(frames, outputs, batch_id)
            self._letters.write(batch_id, report.letters)
        with measured(COMMIT):
            if self._checkpoint is not None:
                self._letters.record_replays(self._begun.record.replays)
                self._checkpoint.mark_written()
            self._run.commit()

    def _note_skipped(self, batch_id: int) -> None:
        skipped = skipped_in(self._run.report.subtasks)
        if self._unblocking is None or skipped == self._skipped:
            return
        before, self._skipped = self._skipped, skipped
        new = {uid: places - before.get(uid, frozenset()) for uid, places in skipped.items()}
        self._unblocking.note_skipped(batch_id, new)

    def _stored(
        self, frames: Sequence[Frame], outputs: Sequence[SinkOutput], batch_id: int, now_ms: int
    ) -> StoredBatch:
        run, begun = self._run, self._begun
        self._keys = add_samples(self._keys, run.report.keys)
        return extended(
            StoredBatch,
            replace(record_of(begun.record, run, run.report, batch_id, self._sink_records), keys=self._keys),
            checkpoint_id=begun.checkpoint_id,
            now_ms=now_ms,
            complete=run.ended,
            runs=[self._run_id],
            workers=self._checkpoint and self._checkpoint.workers,
            letters=run.report.letters,
            outputs=[*encoded_outputs(self._plan, frames, run.codec), *outputs],
        )


class MicroBatchRunner:
    """Runs the micro-batches of a job, one after the other."""

    def __init__(
        self,
        start: JobStart,
        run: LocalRun,
        recorder: Recorder,
        time: BatchTime,
        reports: JobReports,
        log: ProgressLog | None,
    ) -> None:
        """Create the loop.

        Args:
            start: The start of the job.
            run: The subtasks.
            recorder: Stores and writes the results.
            time: The processing time, which is set for each micro-batch.
            reports: Combines what the subtasks report.
            log: Stores the progress. None: it is not stored.
        """
        self._plan = plan = start.plan
        self._run = run
        self._listeners = start.listeners
        self._log = log
        self._recorder = recorder
        self._control = start.control
        self._clock = start.clock
        self._time = time
        self._trigger = start.trigger
        self._sizes: Iterator[int | None] = itertools.repeat(None)
        if (sizes := start.sizes) and plan.mode is not RuntimeExecutionMode.BATCH:
            self._sizes = itertools.chain(sizes, itertools.repeat(sizes[-1]))
        self._next_batch = start.begun.batch_id
        self._restarts = start.checks and plan.mode is RuntimeExecutionMode.STREAMING
        self._ends_when_read = start.trigger.interval_ms is None and not input_is_bounded(plan)
        self._by_clock = any(plan.needs_clock(operator) for operator in plan.operators)
        self._skipped_ms = 0  # by halts
        self._poll_ms = _LAST_POLL_MS
        self._is_woken: bool | None = False  # by a source; None: not all can wait, or the last one had nothing to plan
        self._reports = reports
        self._is_stored = True  # the progress after the last micro-batch
        self._next_file_ns = 0
        self._began_ms: int | None = None  # the running micro-batch

    @property
    def batch_ms(self) -> int:
        """The time in ms since the running micro-batch began; 0 between micro-batches."""
        began = self._began_ms
        return 0 if began is None else self._clock.now_ms() - began

    @property
    def last_batch(self) -> int:
        """The last complete micro-batch."""
        return self._next_batch - 1

    @property
    def now_ms(self) -> int:
        """The time in the job, in ms. Between micro-batches it passes as well."""
        return max(self._time.now_ms, self._clock.now_ms() + self._skipped_ms)

    def run(self) -> Outcome:
        """Run until all input has ended, or the run stops before that.

        Raises:
            Dsv2Error: The job failed.
        """
        try:
            return self._run_all()
        finally:
            self._store_progress(at_end=True)

    def _run_all(self) -> Outcome:
        if self._restarts:
            restart(self._plan, self._run)
        for number in itertools.count():
            if number:  # a savepoint needs a micro-batch
                self._control.serve()
            if self._control.ends_run:
                return Outcome.STOPPED
            began = self._began_ms = self._clock.now_ms()
            self._run.phases.begin()
            self._time.now_ms = max(self._time.now_ms, began + self._skipped_ms)
            match self._run.halt(self._time.now_ms):
                case Halt(until_ms=None):
                    return Outcome.STOPPED
                case Halt(until_ms=int(until_ms)):
                    self._skip(until_ms)
                    self._run.begin_batch(0)
                    self._run_batch(began)
                    continue
                case None:
                    with self._run.phases.measured(PLANNING):
                        reads = self._run.begin_batch(next(self._sizes))
                    has_work = reads or not number or self._ms_to_deadline() <= 0
            if has_work:
                self._run_batch(began)
            elif self._run.is_aligned:
                self._note_pauses()
            if self._run.ended:
                self._run.check_ended()
                return Outcome.ENDED
            if self._ends_when_read and self._run.is_exhausted:
                return Outcome.STOPPED if self._run.records_held else Outcome.EXHAUSTED
            self._recorder.between_batches()
            self._store_progress()
            self._began_ms = None
            self._pause(began, reads=reads)
        raise AssertionError

    def _run_batch(self, began_ms: int) -> None:
        batch_id = self._next_batch
        with patient_collector():
            self._run.run_batch(batch_id)
            self._recorder.record(batch_id, self._time.now_ms)
        self._next_batch += 1
        self._report(batch_id, began_ms)
        if self._restarts and batch_id % _RESTARTS_BY_ROWS:
            self._run.restart()
        elif self._restarts:
            restart(self._plan, self._run)

    def _report(self, batch_id: int, began_ms: int) -> None:
        reported = self._reports.add(batch_id, self._run.report.subtasks, self._time.now_ms)
        self._reports.note_splits(self._run.splits(self._time.now_ms))
        self._reports.complete(reported, began_ms, *self._run.phases.end())
        self._is_stored = False
        if self._listeners:
            self._listeners.progress(self._reports.progress())

    def _store_progress(self, *, at_end: bool = False) -> None:
        if self._log is None or self._is_stored or (elapsed_ns() < self._next_file_ns and not at_end):
            return
        self._log.add(self._reports.progress())
        self._is_stored = True
        self._next_file_ns = elapsed_ns() + _NS_BETWEEN_FILES

    def _note_pauses(self) -> None:
        """Splits may have been paused or resumed although there is nothing to read."""
        self._reports.note_splits(self._run.splits(self._time.now_ms))

    def _skip(self, until_ms: int) -> None:
        """Set the clock of the job forward to ``until_ms``, or to the next micro-batch before that."""
        if interval := self._trigger.interval_ms:
            until_ms = min(until_ms, (self._time.now_ms // interval + 1) * interval)
        self._skipped_ms += until_ms - self._time.now_ms
        self._time.now_ms = until_ms

    def _pause(self, began_ms: int, *, reads: bool) -> None:
        """Wait until the next micro-batch may begin."""
        interval = self._trigger.interval_ms
        self._poll_ms = _FIRST_POLL_MS if reads or self._run.is_paced else min(2 * self._poll_ms, _LAST_POLL_MS)
        if interval:
            due = (began_ms // interval + 1) * interval
            while self._control.waited(due, self._clock):
                self._control.serve()
        elif not reads:
            wait_ms = min(self._poll_ms, max(self._ms_to_deadline(), 0))
            if self._run.is_paced:
                self._clock.wait(timedelta(milliseconds=wait_ms))
                return
            self._is_woken = None if self._is_woken else self._waited_for_sources()
            if self._is_woken is None:
                self._control.wait(wait_ms / 1000)

    def _waited_for_sources(self) -> bool | None:
        """Wait for a source with something to read. Returns whether there is one; None: not all sources can wait."""
        end_ns = elapsed_ns() + round(1e6 * min(_LONGEST_WAIT_MS, max(self._ms_to_deadline(), 0)))
        woken: bool | None = False
        while woken is False and elapsed_ns() < end_ns and not self._control.wait(0):
            woken = self._run.wait()
        return woken

    def _ms_to_deadline(self) -> float:
        """The time until a function has something to do without records."""
        deadline = self._run.tasks.next_deadline() if self._by_clock else None
        return math.inf if deadline is None else deadline - self._time.now_ms


class Execution:
    """Runs a job from its beginning to its end."""

    def __init__(self, start: JobStart) -> None:
        self._start = start
        self._plan = start.plan
        self._begun = begun = start.begun
        self._checkpoint = checkpoint = start.checkpoint
        self._time = BatchTime(max(start.clock.now_ms(), begun.now_ms))
        self._log: ProgressLog | None = None
        if checkpoint is not None:
            folder = on_disk(checkpoint.folder.path, durable=False)  # nothing depends on the progress
            self._log = ProgressLog(folder, begun.batch_id, start.configuration)
        before = None if self._log is None else self._log.before
        is_new = begun.is_new and begun.state is None
        self._reports = JobReports(start.plan, before=before, is_new=is_new, in_portions=False, restarts=start.restarts)
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
    def batch_ms(self) -> int:
        """The time in ms since the running micro-batch began; 0 between micro-batches."""
        return 0 if self._batches is None else self._batches.batch_ms

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
            warn_of_missed_skips(self._plan, skipped_in(self._run.report.subtasks))

    def run(self) -> bool:
        """Run to the end of the input, or until the run stops before it. Returns whether it has stopped.

        Raises:
            Dsv2Error: The job failed.
        """
        with resources_in_use(), frozen_modules():
            outcome = self._run_all()
        self.has_ended = outcome is Outcome.ENDED
        return outcome is Outcome.STOPPED

    def _run_all(self) -> Outcome:
        start, plan = self._start, self._plan
        run = self._run = self._new_run()
        try:
            if self._log is not None:
                self._log.add_job(plan, start.clock.now_ms(), view_of(start.processes))
            run_id = str(uuid4())
            sinks = self._new_sinks(run, run_id)
            recorder = Recorder(start, run, sinks, run_id)
            self._batches = MicroBatchRunner(start, run, recorder, self._time, self._reports, self._log)
            with callback_limit(plan.callback_timeout_ms, may_exit=False):
                sinks.begin(self._begun.batch_id)
                if start.unblocking is not None:
                    start.unblocking.write()
                with patient_collector():
                    recorder.complete_earlier()
                    self._restore(run)
                if self._checkpoint is not None:
                    self._checkpoint.close_read()
                outcome = Outcome.ENDED if self._begun.complete else self._batches.run()
                sinks.roll(at_end=True)
        except CancelledError:
            run.close()
            return Outcome.STOPPED
        except BaseException:
            run.close()
            raise
        run.end()
        return outcome

    def _restore(self, run: LocalRun) -> None:
        state = self._begun.state
        if state is None:
            run.tasks.open()
            return
        try:
            if state.is_unchanged:
                self._restore_unchanged(run)
                return
            if self._checkpoint is not None:
                self._checkpoint.pages.replace_all()
                run.tasks.replace_pages()
            restore(self._plan, run, state.program, state.rows, self._begun.record.sources)
        except CorruptDataError as error:
            raise CorruptDataError(f"{state.place}: {error}") from error

    def _restore_unchanged(self, run: LocalRun) -> None:
        assert self._checkpoint is not None
        stored = self._checkpoint.stored_logs()
        if self._checkpoint.workers is not None and not stored.own:
            self._checkpoint.pages.replace_all()  # the workers copy them
        run.tasks.restore(stored)

    def _new_run(self) -> LocalRun:
        start = self._start
        return LocalRun(
            self._plan,
            start.clock,
            self._new_tasks,
            positions=self._begun.record.sources,
            reading=Reading(start.trigger.interval_ms is None, start.trigger.target_batch_ms),
            is_cancelled=lambda: start.control.is_cancelled,
        )

    def _new_tasks(
        self, codec: Codec, to_sink: EmitFrame, is_cancelled: Callable[[], bool]
    ) -> LocalTasks | WorkerTasks:
        start, plan, clock, checkpoint = self._start, self._plan, self._start.clock, self._checkpoint
        if start.processes == 1:
            job = JobContext.in_process(plan, self._time, clock, codec)
            choice = random.Random(start.seed) if start.checks else None
            pages = None if checkpoint is None else checkpoint.pages
            return LocalTasks(
                plan, job, clock, choice, to_sink, checks=start.checks, pages=pages, is_cancelled=is_cancelled
            )
        logs = () if checkpoint is None else checkpoint.begin_workers(start.processes)
        lock = None if checkpoint is None else checkpoint.lock
        budget = 0 if checkpoint is None else checkpoint.memory_budget
        settings = WorkerSettings(start.processes, start.checks, start.durable, budget // start.processes, logs, lock)
        return WorkerTasks(plan, self._time, clock, codec, settings, to_sink, is_cancelled)

    def _new_sinks(self, of_run: LocalRun, run_id: str) -> LocalSinks:
        begun, clock, job_id = self._begun, self._start.clock, self._begun.record.job_id
        workers = of_run.tasks if isinstance(of_run.tasks, WorkerTasks) else None
        if self._checkpoint is None:
            return LocalSinks(self._plan, job_id, SinkRunInfo(job_id, begun.batch_id), clock, workers=workers)
        first = begun.batch_id if begun.pending is None else begun.pending.batch_id
        runs = () if begun.pending is None else tuple(begun.pending.runs)
        owner = OutputOwner(job_id, begun.checkpoint_id)
        run = SinkRunInfo(run_id, first, runs)
        return LocalSinks(self._plan, job_id, run, clock, owner, durable=self._start.durable, workers=workers)
