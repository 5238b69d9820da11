"""The handle, progress and result of a job, and the triggers of its micro-batches."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from dsv2.base.record_table import RecordTable
from dsv2.checks.arguments import as_milliseconds
from dsv2.errors import ConfigurationError, Dsv2Error
from dsv2.graph import Plan
from dsv2.graph.record_skips import SkippedRecords
from dsv2.jobs.listener import JobListener
from dsv2.jobs.progress import JobProgress
from dsv2.model.error_policy import ErrorPolicy
from dsv2.sources import BaseSource

if TYPE_CHECKING:
    from dsv2.jobs.watermark_report import WatermarkReport


@dataclass(frozen=True, slots=True)
class Trigger:
    """The schedule of the micro-batches of a streaming job, and their size.

    Create one with ``processing_time`` or ``available_now``. Spark's continuous and real-time triggers have no
    counterpart. The continuous one runs no operators with state. The real-time one (Spark 4.3) runs neither Spark's
    operators in Python, which process functions need, nor sources in Python, nor ``foreachBatch``; its sinks are Kafka,
    the console and ``foreach``.
    """

    interval_ms: int | None
    target_batch_ms: int | None = None

    @staticmethod
    def processing_time(
        interval: timedelta = timedelta(0), *, target_batch_duration: timedelta | None = None
    ) -> Trigger:
        """Run a micro-batch at a fixed interval.

        Args:
            interval: The interval. 0 (default) starts each micro-batch as soon as the previous one is complete.
            target_batch_duration: How long a micro-batch should take. A backlog is read in micro-batches that grow
                until they take that long; a small backlog is processed at once. It applies in addition to the limits
                of the sources, but not to DataFrames. None (default): only the limits of the sources apply.

        Raises:
            ConfigurationError: Both ``interval`` and ``target_batch_duration`` are given, or one is out of range.
        """
        interval_ms = as_milliseconds(interval, "interval", at_least=0)
        target_batch_ms = _target_ms(target_batch_duration)
        if interval_ms and target_batch_ms is not None:
            raise ConfigurationError(
                "With target_batch_duration, micro-batches run without a pause so that their durations can be "
                "measured. Remove the interval."
            )
        return Trigger(interval_ms, target_batch_ms)

    @staticmethod
    def available_now(*, target_batch_duration: timedelta | None = None) -> Trigger:
        """Process the data that is available now, in one or more micro-batches, then stop.

        Args:
            target_batch_duration: As for ``processing_time``.

        Raises:
            ConfigurationError: ``target_batch_duration`` is not a positive duration.
        """
        return Trigger(None, _target_ms(target_batch_duration))


def _target_ms(duration: timedelta | None) -> int | None:
    return None if duration is None else as_milliseconds(duration, "target_batch_duration", at_least=1)


class JobStatus(Enum):
    """The lifecycle of a job.

    A job with ``Trigger.available_now`` that ends while records are buffered behind aligned watermarks is stopped, not
    finished. A later run emits them once every channel has delivered the watermark.
    """

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True, repr=False)
class JobResult:
    """The result of a completed job. A notebook shows it as a table.

    Attributes:
        job_name: The name given to ``execute``.
        duration: How long the job ran.
        progress: The progress after the last micro-batch.
    """

    job_name: str
    duration: timedelta
    progress: JobProgress

    def __repr__(self) -> str:
        operators = self.progress.operators.values()
        errors = sum(subtask.errors for operator in operators for subtask in operator.subtasks)
        return (
            f"JobResult({self.job_name!r:.80}, {self.duration.total_seconds():.3f} s, {len(operators)} operators, "
            f"last micro-batch {self.progress.batch_id}, {errors} errors)"
        )

    def _repr_html_(self) -> str:
        rows = [
            {"operator": one.name, "uid": one.uid, "records in": one.records_in, "records out": one.records_out}
            for one in self.progress.operators.values()
        ]
        return f"<p>{escape(repr(self))}</p>{RecordTable(rows).html()}"


class JobHandle(Protocol):
    """A job started by ``execute_async``."""

    @property
    def plan(self) -> Plan:
        """The plan of the job, with its name."""

    @property
    def status(self) -> JobStatus:
        """The state of the job: running, finished, stopped or failed."""

    @property
    def progress(self) -> JobProgress:
        """Records in and out, watermarks and metrics per operator uid, as of the last micro-batch."""

    def watermarks(self, identifier: str = "event-time", operator: str | None = None) -> WatermarkReport:
        """Report what holds a watermark back, as of the last micro-batch.

        Args:
            identifier: The identifier of the watermark; ``event-time`` for event time.
            operator: The uid or the name of an operator. None (default): all functions that receive the watermark, and
                all that wait for event time.

        Raises:
            ConfigurationError: The job declares no such watermark, or has no such operator.
        """

    def await_termination(self, timeout: timedelta | None = None) -> bool:
        """Wait until the job ends.

        Args:
            timeout: How long to wait. None (default): without a limit.

        Returns:
            True if the job has ended, False if ``timeout`` passed first.

        Raises:
            Dsv2Error: The job failed; this is the error that it failed with.
        """

    def stop(self, timeout: timedelta | None = None) -> None:
        """Stop the job between two micro-batches. A restart from the checkpoint resumes from there.

        Waits for the running micro-batch, and logs from time to time what it waits for. A BATCH job cannot resume:
        ``stop`` waits for its end or cancels all of it.

        Args:
            timeout: Cancel the running micro-batch if it takes longer than this; the next start repeats it. 0 cancels
                at once. None (default): never cancel.

        Raises:
            JobError: The job does not end even when it is cancelled, because a function of a sink on the driver
                blocks.
        """

    def savepoint(self, path: str | PathLike[str]) -> str:
        """Take a savepoint between two micro-batches. The job continues.

        Args:
            path: A folder that does not exist or is empty, on any file system that the runtime can reach.

        Returns:
            The path of the savepoint.

        Raises:
            ConfigurationError: The folder is not empty, or the job is one of which no savepoint can be taken, such as
                a BATCH job or one that has ended.
            JobError: The job failed meanwhile.

        Source: Flink ``flink savepoint``.
        """

    def stop_with_savepoint(self, path: str | PathLike[str]) -> str:
        """Stop the job between two micro-batches, and take a savepoint. Parameters, result and errors: ``savepoint``.

        Source: Flink ``flink stop --savepointPath``.
        """

    def exception(self) -> Dsv2Error | None:
        """The error that the job failed with, or None."""

    def result(self) -> JobResult:
        """Wait until the job ends, and return its result.

        Raises:
            Dsv2Error: The job failed; this is the error that it failed with.
        """


@runtime_checkable
class TimedJob(Protocol):
    """A job that knows how long its micro-batch has run. Optional."""

    @property
    def batch_ms(self) -> int:
        """The time in ms since the running micro-batch began; 0 between micro-batches."""


@runtime_checkable
class RestartableJob(Protocol):
    """A job that can begin again from its checkpoint without ending. Optional."""

    def restart(self, policies: Mapping[str, ErrorPolicy] = ...) -> None:
        """Begin again between two micro-batches. Returns at once.

        Args:
            policies: Other error policies of operators, by uid. They apply until the job ends.

        Raises:
            ConfigurationError: The job has no checkpoint, or an operator cannot have the policy.
        """


class OnChange(Enum):
    """The treatment, by a restart, of changes of the program that only a savepoint carries."""

    MIGRATE = "migrate"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of ``execute`` that the runtime uses, checked: ``JobOptions`` describes them.

    ``background``: Whether the caller continues while the job runs. If not, it waits for its end at once, so that the
    runtime may run the job in the thread of the caller.
    """

    checkpoint_location: str | None = None
    trigger: Trigger | None = None
    allow_dropped_state: bool = False
    savepoint: str | None = None
    as_new_job: bool = False
    continued_sources: Collection[str] = frozenset()
    on_change: OnChange = OnChange.MIGRATE
    dead_letters: str | None = None
    skip_records: SkippedRecords = field(default_factory=dict)
    trace_records: bool = False
    listeners: tuple[JobListener, ...] = ()
    background: bool = True


def input_is_bounded(plan: Plan) -> bool:
    """Return whether all sources of ``plan`` are bounded."""
    return all(operator.body.bounded for operator in plan.operators if isinstance(operator.body, BaseSource))


def check_batch_options(options: RunOptions) -> None:
    """Raise ``ConfigurationError`` if a BATCH job has options that only STREAMING jobs have. Called by runtimes."""
    if options.savepoint is not None:
        raise ConfigurationError("A BATCH job has no state to restore. Omit savepoint, or use STREAMING.")
    if options.checkpoint_location is not None or options.trigger is not None:
        raise ConfigurationError(
            "A BATCH job has neither a checkpoint nor a trigger. Remove these arguments, or use STREAMING."
        )


def default_trigger(plan: Plan) -> Trigger:
    """Return the trigger of a streaming job that sets none."""
    return Trigger.available_now() if input_is_bounded(plan) else Trigger.processing_time()


class JobRuntime(Protocol):
    """Runs plans. Selected by name or passed to ``ExecutionEnvironment.get_instance``."""

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        """Start ``plan`` and return as soon as the job is running."""
