"""``LocalRuntime``, the runtime of ``get_instance(runtime="local")``."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from os import PathLike
from time import sleep

from dsv2.arguments import check_whole_number
from dsv2.clock import Clock, SystemClock
from dsv2.context import RuntimeExecutionMode
from dsv2.dead_letters.replay import check_replays
from dsv2.dead_letters.store import LetterWriter
from dsv2.errors import ConfigurationError, Dsv2Error, PlanError, UserFunctionError
from dsv2.graph import OperatorKind, Plan
from dsv2.graph.skips import warn_of_missed_skips, with_skips
from dsv2.job import JobProgress, JobResult, JobStatus, RunOptions
from dsv2.local.letters import letter_writer
from dsv2.local.run import LocalRun
from dsv2.local.savepoints import restart, restore, take
from dsv2.local.sinks import LocalSinks
from dsv2.paths import local_folder
from dsv2.program.description import Description
from dsv2.program.key_samples import changed_keys, readable_samples
from dsv2.program.savepoint_check import check_savepoint
from dsv2.resource import resources_in_use
from dsv2.runtime.operator.callback_limit import callback_limit
from dsv2.runtime.operator.job_context import JobContext, event_loop_of
from dsv2.runtime.report.progress import job_progress
from dsv2.runtime.report.ways_out import TO_TRACE, with_ways_out
from dsv2.runtime.serde.codec import Codec
from dsv2.runtime.serde.type_registry import TypeRegistry
from dsv2.runtime.sources.continuation import check_kind
from dsv2.runtime.state.timers import BatchTime
from dsv2.runtime_view import RuntimeView
from dsv2.savepoint.metadata import Origin
from dsv2.savepoint.reader import SavepointReader
from dsv2.sinks import DriverSink, ParallelSink
from dsv2.sources import BaseSource, DataFrameSource, Halt, IndexedSource
from dsv2.tracebacks import short_traceback
from dsv2.unfinished import asked

__all__ = ("LocalRuntime",)

_POLL_SECONDS = 0.01  # how often sources without new data are polled
_ONLY_LOCAL = "The local runtime cannot reach other file systems. Copy the folder."
_RESTARTS_BY_ROWS = 4  # every fourth restart is like a start from a savepoint, which is slower
_RUNS = itertools.count()  # the runs of this process


class LocalRuntime:
    """Runs jobs in this process, to their end, before ``execute_async`` returns.

    It is strict, so that a job that works locally also works on Spark. All records between subtasks are serialized and
    deserialized. So is the state of a STREAMING job, before the first record and after every micro-batch. A record that
    is modified after it was emitted raises ``RecordMutatedError``.

    An unbounded source with splits requires ``Trigger.available_now()``. The job then stops when the data that was
    available at its start has been processed, without the end of input.

    The differences from Spark are that there are no checkpoints, and that DataFrame sources and the file sinks of Spark
    are not available.

    Args:
        seed: The seed of the interleaving of channels.
        batches: The sizes of micro-batches, in records per source subtask. The last size repeats. Empty: a single
            micro-batch.
        fast: Whether to disable the checks, which is several times as fast.
        clock: The job's clock. None: the system clock.

    Raises:
        ConfigurationError: A size in ``batches`` is not a whole number of at least 1.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        batches: Sequence[int] = (),
        fast: bool = False,
        clock: Clock | None = None,
    ) -> None:
        for size in batches:
            check_whole_number(size, "Each of batches")
        self._seed = seed
        self._batches = tuple(batches)
        self._fast = fast
        self._clock = clock if clock is not None else SystemClock()

    def runtime_view(self, plan: Plan) -> RuntimeView:
        """Return whether this runtime can run ``plan``, for ``ExecutionEnvironment.explain``."""
        try:
            _check_plan(plan, available_now=True)
        except PlanError as error:
            return RuntimeView("local", one_process=True, refusal=f"{type(error).__name__}: {error}")
        return RuntimeView("local", one_process=True)

    def start(self, plan: Plan, options: RunOptions) -> FinishedJob:
        """Run ``plan`` to its end and return a handle with its outcome.

        Raises:
            ConfigurationError: The plan or the options require Spark.
        """
        _check(plan, options)
        plan = with_skips(plan, options.skip_records)
        if options.trace_records:
            plan = replace(plan, traces=True)
        savepoint = None if options.savepoint is None else _open(plan, options)
        begin = self._clock.now_ms()
        job = FinishedJob(plan, f"local-{os.getpid()}-{begin}-{next(_RUNS)}")
        letters = letter_writer(plan, options, job.job_id)
        try:
            with resources_in_use():
                self._run(plan, job, BatchTime(begin), savepoint, letters)
        except UserFunctionError as error:
            ranges = [] if job.run is None else job.run.ranges_read()
            to_name_it = "" if plan.traces else TO_TRACE
            job.error = with_ways_out(error, plan, ranges, to_name_it)
            job.error.__cause__ = error.__cause__
        except Dsv2Error as error:
            job.error = error
        if job.run is not None and job.error is None:
            warn_of_missed_skips(plan, job.run.skipped())
        job.duration = timedelta(milliseconds=self._clock.now_ms() - begin)
        return job

    def _run(
        self,
        plan: Plan,
        job: FinishedJob,
        time: BatchTime,
        savepoint: SavepointReader | None,
        letters: LetterWriter | None,
    ) -> None:
        codec = Codec(TypeRegistry.of(plan))
        context = JobContext(
            plan.job_name,
            plan.mode,
            plan.declarations,
            codec,
            time,
            wait=self._clock.wait,
            event_loop=event_loop_of(self._clock),
        )
        positions = {} if savepoint is None else savepoint.info.sources
        choice = random.Random(self._seed)
        run = LocalRun(plan, context, self._clock, choice, fast=self._fast, positions=positions)
        job.run = run
        job.earlier = () if savepoint is None else savepoint.info.programs
        try:
            with callback_limit(plan.callback_timeout_ms, may_exit=False):
                if savepoint is None:
                    run.open()
                else:
                    restore(plan, run, savepoint.info.program, savepoint.rows, positions)
                self._run_batches(run, plan, job, time, letters)
        except BaseException:
            run.close()
            raise
        run.close_sources()

    def _run_batches(
        self, run: LocalRun, plan: Plan, job: FinishedJob, time: BatchTime, letters: LetterWriter | None
    ) -> None:
        keeps_state = plan.mode is RuntimeExecutionMode.STREAMING and not self._fast
        if keeps_state:
            restart(plan, run)
        bounded = all(operator.body.bounded for operator in plan.operators if isinstance(operator.body, BaseSource))
        sizes = self._sizes(plan)
        sinks = LocalSinks(job.job_id)
        skipped_ms = 0
        for batch_id in itertools.count():
            time.now_ms = self._clock.now_ms() + skipped_ms
            match run.halt(time.now_ms):
                case None:
                    size = next(sizes)
                case Halt(until_ms=None):
                    job.stopped = True
                    return
                case Halt(until_ms=int(until_ms)):
                    skipped_ms += until_ms - time.now_ms
                    time.now_ms = until_ms
                    size = 0
            more = run.run_batch(size)
            for operator, frames in run.take_collected():
                sinks.write(operator, frames, batch_id)
            if letters is not None:
                letters.write(batch_id, run.take_letters())
            run.commit()
            job.progress = job_progress(plan, batch_id, run.progress())
            exhausted = not bounded and run.is_exhausted
            if keeps_state and batch_id % _RESTARTS_BY_ROWS:
                run.restart()
            elif keeps_state:
                restart(plan, run)
            if not more:
                break
            if exhausted:
                job.stopped = run.records_held > 0
                return
            if run.waits:
                sleep(_POLL_SECONDS)
        run.check_ended()

    def _sizes(self, plan: Plan) -> Iterator[int | None]:
        if not self._batches or plan.mode is RuntimeExecutionMode.BATCH:
            return itertools.repeat(None)
        return itertools.chain(self._batches, itertools.repeat(self._batches[-1]))


class FinishedJob:
    """The ``JobHandle`` of a job that has already ended."""

    def __init__(self, plan: Plan, job_id: str) -> None:
        self._plan = plan
        self._job_name = plan.job_name
        self.job_id = job_id
        self.run: LocalRun | None = None
        self.earlier: Sequence[Description] = ()
        self.progress: JobProgress = job_progress(plan, -1, [])
        self.error: Dsv2Error | None = None
        self.stopped = False
        self.duration = timedelta(0)

    def __repr__(self) -> str:
        return f"<job {self._job_name!r}: {self.status.value}>"

    @property
    def status(self) -> JobStatus:
        """The status: finished, failed, or stopped by its input."""
        if self.error is not None:
            return JobStatus.FAILED
        return JobStatus.STOPPED if self.stopped else JobStatus.FINISHED

    @short_traceback
    def await_termination(self, timeout: timedelta | None = None) -> bool:
        """Return True immediately. Raises the error with which the job failed."""
        asked(self)
        if self.error is not None:
            raise self.error
        return True

    def stop(self, timeout: timedelta | None = None) -> None:
        """Do nothing: the job has ended."""

    @short_traceback
    def savepoint(self, path: str | PathLike[str]) -> str:
        """Take a savepoint where the job has stopped.

        Args:
            path: A folder that does not exist or is empty.

        Raises:
            ConfigurationError: The folder is not empty, or the job has not stopped before the end of its input.
            Dsv2Error: The job failed; this is the error that it failed with.
        """
        asked(self)
        if self.error is not None:
            raise self.error
        if not self.stopped or self.run is None:
            raise ConfigurationError(
                f"The job {self._job_name!r} has reached the end of its input, so there is nothing to continue. A "
                f"savepoint of a local job needs input that stops before its end: an unbounded source with "
                f"Trigger.available_now(), or a TestSource with Stop()."
            )
        folder = local_folder(path, _ONLY_LOCAL)
        origin = Origin(self._job_name, self.job_id, self.progress.batch_id)
        take(self._plan, self.run, self.earlier, origin, folder)
        return folder.path

    def stop_with_savepoint(self, path: str | PathLike[str]) -> str:
        """Take a savepoint, as ``savepoint`` does: the job has already stopped."""
        return self.savepoint(path)

    def exception(self) -> Dsv2Error | None:
        """Return the error with which the job failed, or None."""
        asked(self)
        return self.error

    @short_traceback
    def result(self) -> JobResult:
        """Return the result. Raises the error with which the job failed."""
        self.await_termination()
        return JobResult(self._job_name, self.duration, self.progress)


def _open(plan: Plan, options: RunOptions) -> SavepointReader:
    assert options.savepoint is not None
    savepoint = SavepointReader(local_folder(options.savepoint, _ONLY_LOCAL))
    info = savepoint.info
    allowed = options.allow_dropped_state
    types = TypeRegistry.of(plan)
    check_savepoint(
        options.savepoint,
        plan,
        info.programs,
        types,
        allow_dropped_state=allowed,
        fields=info.fields,
        holding=info.holding,
        changed_keys=changed_keys(plan, readable_samples(plan, list(info.keys), Codec(types))),
    )
    check_replays(plan, savepoint.replays(), types)
    for operator in plan.operators:
        if operator.kind is OperatorKind.SOURCE and operator.uid in info.sources:
            check_kind(operator, info.sources[operator.uid].offset)
    return savepoint


def _check(plan: Plan, options: RunOptions) -> None:
    if options.savepoint is not None and plan.mode is RuntimeExecutionMode.BATCH:
        raise ConfigurationError("A BATCH job has no state to restore. Omit savepoint, or use STREAMING.")
    if options.checkpoint_location is not None:
        raise ConfigurationError("The local runtime has no checkpoints. Omit checkpoint_location, or use Spark.")
    _check_plan(plan, available_now=options.trigger is not None and options.trigger.interval_ms is None)


def _check_plan(plan: Plan, *, available_now: bool) -> None:
    for operator in plan.operators:
        where = f"{operator}, defined at {operator.location},"
        if operator.kind is OperatorKind.SOURCE and isinstance(operator.body, DataFrameSource):
            raise ConfigurationError(
                f"The source {where} requires Spark. Use another source locally, such as a collection."
            )
        if isinstance(operator.body, IndexedSource) and not operator.body.bounded:
            raise ConfigurationError(
                f"The source {where} is unbounded and never runs out of records. Set its count to run it locally."
            )
        if isinstance(operator.body, BaseSource) and not operator.body.bounded and not available_now:
            raise ConfigurationError(
                f"The source {where} is unbounded. A local job reads only the data that is available when it starts: "
                f"set trigger=Trigger.available_now()."
            )
        if operator.kind is OperatorKind.SINK and not isinstance(operator.body, DriverSink | ParallelSink):
            raise ConfigurationError(f"The sink {where} requires Spark. Use another sink locally, such as CollectSink.")
