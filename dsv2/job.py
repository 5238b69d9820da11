"""What a running or finished job shows: handle, progress, result; and how its micro-batches are triggered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from dsv2.errors import ConfigurationError, Dsv2Error
from dsv2.graph import Plan

__all__ = (
    "JobHandle",
    "JobProgress",
    "JobResult",
    "JobRuntime",
    "JobStatus",
    "OperatorProgress",
    "RunOptions",
    "Trigger",
)


@dataclass(frozen=True, slots=True)
class Trigger:
    """When a streaming job runs its next micro-batch, and how large it is. Made by one of the two methods.

    ``target_batch_ms``: how long a micro-batch should take, in ms. A backlog is read in micro-batches that grow from
    small ones until they take that long; what trickles in is not kept waiting. It counts besides the limits of the
    sources; not for DataFrames, nor in the local runtime. None: only the limits count.
    """

    interval_ms: int | None
    target_batch_ms: int | None = None

    @staticmethod
    def processing_time(interval_ms: int = 0, *, target_batch_ms: int | None = None) -> Trigger:
        """A micro-batch every ``interval_ms`` milliseconds; 0: as soon as the one before is done.

        Raises ``ConfigurationError`` for both an interval and ``target_batch_ms``.
        """
        if not isinstance(interval_ms, int) or interval_ms < 0:
            raise ConfigurationError(
                f"processing_time takes milliseconds, a whole number of at least 0, not {interval_ms!r}."
            )
        _check_target(target_batch_ms)
        if interval_ms and target_batch_ms is not None:
            raise ConfigurationError(
                "With target_batch_ms one micro-batch follows the other, so that it can be told how long they take: "
                "leave the interval out."
            )
        return Trigger(interval_ms, target_batch_ms)

    @staticmethod
    def available_now(*, target_batch_ms: int | None = None) -> Trigger:
        """Process what the sources hold now, in as many micro-batches as it takes, then end."""
        _check_target(target_batch_ms)
        return Trigger(None, target_batch_ms)

    @staticmethod
    def continuous(interval_ms: int = 0) -> Trigger:
        """Refused: raises ``ConfigurationError`` with the reason."""
        raise ConfigurationError(
            "Spark's continuous mode runs no stateful operators, and every process function is one. "
            "Use Trigger.processing_time()."
        )

    @staticmethod
    def real_time(interval_ms: int = 0) -> Trigger:
        """Refused: raises ``ConfigurationError`` with the reason."""
        raise ConfigurationError(
            "Spark's real-time mode does not run applyInPandasWithState, on which process functions run. "
            "Use Trigger.processing_time()."
        )


def _check_target(target_batch_ms: int | None) -> None:
    if target_batch_ms is not None and (not isinstance(target_batch_ms, int) or target_batch_ms < 1):
        raise ConfigurationError(
            f"target_batch_ms is in milliseconds, a whole number of at least 1, not {target_batch_ms!r}."
        )


@dataclass(frozen=True, slots=True)
class OperatorProgress:
    """What one operator has done since the job first started, over all subtasks.

    ``watermarks``: per identifier the value last delivered in each subtask (None where none was yet).
    ``counters`` are summed over the subtasks, ``gauges`` too. ``records_held`` wait behind aligned watermarks.
    ``state_bytes``: the checkpointed value of the largest subtask, in bytes, in streaming jobs on Spark. The operators
    of a chain share one value; it is shown at the first of them.
    """

    uid: str
    name: str
    records_in: int = 0
    records_out: int = 0
    records_held: int = 0
    watermarks: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class JobProgress:
    """The state of a job after micro-batch ``batch_id``.

    -1: this run of the program has finished none yet, so there is nothing to tell (after a restart, too).
    """

    batch_id: int
    operators: Mapping[str, OperatorProgress]


class JobStatus(Enum):
    """Where a job is in its life.

    A job that has read what is there (``Trigger.available_now``) while records wait behind aligned watermarks is
    stopped, not finished: they go on when the watermark has come from every channel, in a later run.
    """

    RUNNING = "RUNNING"
    FINISHED = "FINISHED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class JobResult:
    """What ``execute`` returns."""

    job_name: str
    seconds: float
    progress: JobProgress


class JobHandle(Protocol):
    """A job started by ``execute_async``."""

    @property
    def status(self) -> JobStatus:
        """Running, finished, stopped or failed."""

    @property
    def progress(self) -> JobProgress:
        """Records in and out, watermarks and metrics per operator uid, as of the last micro-batch."""

    def await_termination(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the job ends; False if ``timeout_seconds`` passed first. Raises what the job failed with."""

    def stop(self, timeout_seconds: float | None = None) -> None:
        """End the job between two micro-batches; started again from its checkpoint it goes on from there.

        Waits for the micro-batch that is running, and logs now and then what for. ``timeout_seconds``: cancel the
        micro-batch if it takes longer than that; the next start repeats it. 0: at once. A BATCH job has no point at
        which it could go on: ``stop`` waits for its end, or cancels all of it. Raises ``JobError`` if the job does not
        end even when it is cancelled: because a function of a sink on the driver blocks.
        """

    def exception(self) -> Dsv2Error | None:
        """What the job failed with, or None."""

    def result(self) -> JobResult:
        """Wait for the end, then the result. Raises what the job failed with."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The arguments of ``execute`` that are for the runtime."""

    checkpoint_location: str | None = None
    trigger: Trigger | None = None
    allow_non_restored_state: bool = True


class JobRuntime(Protocol):
    """Runs plans; found by name or given to ``ExecutionEnvironment.get_instance``."""

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        """Begin to run ``plan``; returns as soon as the job is under way."""
