"""``LocalRuntime``, the runtime of ``get_instance(runtime="local")``."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from uuid import uuid4

from dsv2.base.clock import Clock, SystemClock
from dsv2.base.folders import Folder
from dsv2.base.record_position import RecordPosition
from dsv2.checkpoint.failed_batch import Unblocking
from dsv2.checkpoint.file_folders import folders_of, left_folders
from dsv2.checks.arguments import check_whole_number
from dsv2.errors import ConfigurationError, PlanError
from dsv2.file_log.completion import Completion
from dsv2.file_log.ownership import OutputOwner
from dsv2.graph import Operator, Plan
from dsv2.graph.error_policies import with_policies
from dsv2.graph.record_skips import with_skips
from dsv2.graph.uids import check_uids
from dsv2.jobs.configuration import configuration_of
from dsv2.jobs.handle import RunOptions, default_trigger, input_is_bounded
from dsv2.local.checkpoint import LocalCheckpoint
from dsv2.local.checks import check_plan, check_start
from dsv2.local.control import JobControl
from dsv2.local.execution import JobStart
from dsv2.local.job import LocalJob
from dsv2.local.letters import letter_writer
from dsv2.local.restarts import LOST_WORKERS, RestartPolicy, Restarts
from dsv2.local.restoration import LocalStart, beginning_of, on_disk
from dsv2.local.sinks import LocalMerger, places_of, with_schema_checks
from dsv2.local.workers.tasks import view_of
from dsv2.model.context import RuntimeExecutionMode
from dsv2.model.error_policy import ErrorPolicy
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.sources.ranges import has_read


def plan_of_run(
    plan: Plan, options: RunOptions, begun: LocalStart, checkpoint: LocalCheckpoint | None
) -> tuple[Plan, Unblocking | None]:
    """Return ``plan`` as the run needs it, which skips and traces records, and what the checkpoint remembers of skips.

    Without a checkpoint, only this run skips the records.

    Raises:
        CorruptDataError: What the checkpoint remembers is damaged.
    """
    plan = replace(plan, traces=options.trace_records)
    if checkpoint is None:
        return with_skips(plan, options.skip_records), None
    unblocking = Unblocking(checkpoint.folder, options.skip_records, begun.batch_id)

    def is_read(source: Operator, at: RecordPosition) -> bool:
        position = begun.record.sources.get(at.source)
        return position is not None and has_read(source, position.offset, at.split, at.offset)

    unblocking.warn_of_read(plan, is_read)
    return with_skips(plan, unblocking.skips), unblocking


_LOG = logging.getLogger("dsv2.job")
_RUNS = itertools.count()  # the runs of this process


class LocalRuntime:
    """Runs jobs in this process, or in worker processes on this machine.

    With ``checks`` a job that works locally also works on Spark: all records between subtasks are serialized and
    deserialized, and so is the state of a STREAMING job, before the first record and after every micro-batch. A record
    that is modified after it was emitted raises ``RecordMutatedError``. The checks are for tests. In production, do
    without them.

    ``docs/runtimes.md`` lists what differs from Spark.

    Args:
        seed: The seed of the interleaving of channels, with checks.
        batches: The sizes of micro-batches, in records per source subtask. The last size repeats. Empty: the limits of
            the sources.
        checks: Whether to make the checks. The results are the same without them.
        clock: The job's clock. None: the system clock.
        durable: Whether a micro-batch is forced to the disk, in the checkpoint, in files of sinks and in dead letters.
            False: the job survives the end of its process, but after a loss of power the checkpoint may be older than
            the output, or damaged.
        restarts: The restarts after failures. None: a job that fails ends. They require a ``checkpoint_location``.
        processes: The number of worker processes among which subtasks are spread by their index, so the parallelism of
            operators should be a multiple of it. They write to each ``ParallelSink`` as well. 1: all of it is in this
            process. If a worker dies, a job with a ``checkpoint_location`` is restarted up to three times in ten
            minutes, also without ``restarts``.
        memory_budget: The memory in MB for keyed state that stays decoded between micro-batches, in a job with a
            checkpoint and without checks. The state that was not used for the longest time leaves it, and is read from
            the disk when it is used again. A micro-batch that uses twice as much, and more than 32 MB,
            writes state before its end to release memory. Worker processes share it equally.

    Raises:
        ConfigurationError: A size in ``batches`` or ``processes`` is not a whole number of at least 1, or
            ``memory_budget`` is none of at least 0.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        batches: Sequence[int] = (),
        checks: bool = True,
        clock: Clock | None = None,
        durable: bool = True,
        restarts: RestartPolicy | None = None,
        memory_budget: int = 256,
        processes: int = 1,
    ) -> None:
        for size in batches:
            check_whole_number(size, "Each of batches")
        check_whole_number(memory_budget, "memory_budget", at_least=0)
        check_whole_number(processes, "processes")
        self._seed = seed
        self._batches = tuple(batches)
        self._checks = checks
        self._durable = durable
        self._memory_budget = memory_budget
        self._clock = clock if clock is not None else SystemClock()
        self._restarts = restarts
        self._processes = processes

    def runtime_view(self, plan: Plan) -> RuntimeView:
        """Return whether this runtime can run ``plan``, for ``ExecutionEnvironment.explain``."""
        try:
            check_plan(plan)
        except PlanError as error:
            return RuntimeView("local", self._processes == 1, refusal=f"{type(error).__name__}: {error}")
        return view_of(self._processes)

    def configuration(self) -> Mapping[str, str]:
        """Return the settings of this runtime, for dashboards."""
        return {
            "seed": str(self._seed),
            "batches": ", ".join(map(str, self._batches)) or "the limits of the sources",
            "checks": str(self._checks),
            "durable": str(self._durable),
            "memory_budget": f"{self._memory_budget} MB",
            "clock": type(self._clock).__qualname__,
            "processes": str(self._processes),
            "restarts": "none" if self._restarts is None else str(self._restarts),
        }

    def open_folder(self, path: str) -> Folder:
        """Open a folder on the local disk, for dashboards."""
        return on_disk(path)

    def start(self, plan: Plan, options: RunOptions) -> LocalJob:
        """Start to run ``plan``. If the caller waits for its end, it runs in the thread of the caller.

        Raises:
            ConfigurationError: The plan requires Spark, an option is not valid, or the checkpoint is in use.
            IncompatibleCheckpointError: The program cannot continue from the checkpoint or savepoint.
            CorruptDataError: The checkpoint or savepoint is damaged.
        """
        check_start(plan, options)
        if all(operator.parallelism == 1 for operator in plan.operators) and self._processes > 1:
            _LOG.warning(
                "No operator of the job %r has more than one subtask, so %d processes run it no faster than one. Set "
                "the parallelism, for example with env.set_parallelism(%d).",
                plan.job_name,
                self._processes,
                self._processes,
            )
        plan = with_schema_checks(plan)
        checkpoint = self._open_checkpoint(plan, options)
        if self._restarts is not None and checkpoint is None:
            raise ConfigurationError(
                f"restarts=... requires a checkpoint_location. Without one, the job {plan.job_name!r} would begin with "
                f"empty state again, and write its output twice."
            )
        prepare = partial(self._prepare, plan, options, checkpoint, JobControl(), JobListeners(options.listeners))
        try:
            job = LocalJob(prepare, checkpoint, Restarts(self._restarts, LOST_WORKERS if checkpoint else None))
        except BaseException:
            if checkpoint is not None:
                checkpoint.release()
            raise
        if options.background:
            job.start(ends=(options.trigger or default_trigger(plan)).interval_ms is None or input_is_bounded(plan))
        else:
            job.run()
        return job

    def _open_checkpoint(self, plan: Plan, options: RunOptions) -> LocalCheckpoint | None:
        if options.checkpoint_location is None or plan.mode is RuntimeExecutionMode.BATCH:
            return None
        check_uids(plan)
        place = on_disk(options.checkpoint_location, durable=self._durable)
        budget = 0 if self._checks else self._memory_budget << 20
        checkpoint = LocalCheckpoint(place, durable=self._durable, memory_budget=budget)
        checkpoint.acquire()
        return checkpoint

    def _prepare(
        self,
        plan: Plan,
        options: RunOptions,
        checkpoint: LocalCheckpoint | None,
        control: JobControl,
        listeners: JobListeners,
        restarts: int,
        policies: Mapping[str, ErrorPolicy],
    ) -> JobStart:
        """Prepare a run of a job: its first one, or the next one."""
        plan = with_policies(plan, policies)
        job_id = f"local-{os.getpid()}-{self._clock.now_ms()}-{next(_RUNS)}" if checkpoint is None else str(uuid4())
        begun = beginning_of(plan, options, job_id, checkpoint)
        _check_files(plan, begun, has_checkpoint=checkpoint is not None)
        self._complete_former_outputs(plan, options, begun)
        letters = letter_writer(plan, options, begun.record.job_id, durable=self._durable)
        plan, unblocking = plan_of_run(plan, options, begun, checkpoint)
        return JobStart(
            plan,
            begun,
            checkpoint,
            letters,
            unblocking,
            self._seed,
            self._batches,
            self._checks,
            self._durable,
            self._clock,
            options.trigger or default_trigger(plan),
            configuration_of(plan, options, self.configuration()),
            control,
            listeners,
            self._processes,
            restarts,
        )

    def _complete_former_outputs(self, plan: Plan, options: RunOptions, begun: LocalStart) -> None:
        """Complete the folders of file sinks that the program no longer has."""
        owner = OutputOwner(begun.record.job_id, begun.checkpoint_id)
        completion = Completion(on_disk, LocalMerger, owner, begun.batch_id, self._clock, options.allow_dropped_state)
        left = left_folders(begun.record.file_folders(), folders_of(plan, on_disk))
        completion.complete(left, str(uuid4()), takes_over=begun.is_new)


def _check_files(plan: Plan, begun: LocalStart, *, has_checkpoint: bool) -> None:
    """Check that the folders of file sinks belong to this job, as on Spark."""
    for place, sink in places_of(plan):
        if has_checkpoint:
            owner = OutputOwner(begun.record.job_id, begun.checkpoint_id)
            place.check(sink.format.value, sink.partition_by, owner, begun.batch_id, takes_over=begun.is_new)
        else:
            place.check_unused()
