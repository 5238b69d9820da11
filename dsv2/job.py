"""What a running or finished job shows: handle, progress, result; and how its micro-batches are triggered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from typing import Protocol

from dsv2.arguments import as_milliseconds
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

    ``target_batch_duration``: how long a micro-batch should take. A backlog is read in micro-batches that grow from
    small ones until they take that long; what trickles in is not kept waiting. It counts besides the limits of the
    sources; not for DataFrames, nor in the local runtime. None: only the limits count.

    Spark's continuous and real-time triggers have no counterpart: neither runs the stateful operators that process
    functions need.
    """

    interval_ms: int | None
    target_batch_ms: int | None = None

    @staticmethod
    def processing_time(
        interval: timedelta = timedelta(0), *, target_batch_duration: timedelta | None = None
    ) -> Trigger:
        """A micro-batch every ``interval``; 0: as soon as the one before is done.

        Raises ``ConfigurationError`` for both an interval and ``target_batch_duration``.
        """
        interval_ms = as_milliseconds(interval, "interval", at_least=0)
        target_batch_ms = _target_ms(target_batch_duration)
        if interval_ms and target_batch_ms is not None:
            raise ConfigurationError(
                "With target_batch_duration one micro-batch follows the other, so that their durations can be "
                "measured: leave the interval out."
            )
        return Trigger(interval_ms, target_batch_ms)

    @staticmethod
    def available_now(*, target_batch_duration: timedelta | None = None) -> Trigger:
        """Process what the sources hold now, in as many micro-batches as it takes, then end."""
        return Trigger(None, _target_ms(target_batch_duration))


def _target_ms(duration: timedelta | None) -> int | None:
    return None if duration is None else as_milliseconds(duration, "target_batch_duration", at_least=1)


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
    duration: timedelta
    progress: JobProgress


class JobHandle(Protocol):
    """A job started by ``execute_async``."""

    @property
    def status(self) -> JobStatus:
        """Running, finished, stopped or failed."""

    @property
    def progress(self) -> JobProgress:
        """Records in and out, watermarks and metrics per operator uid, as of the last micro-batch."""

    def await_termination(self, timeout: timedelta | None = None) -> bool:
        """Wait until the job ends; False if ``timeout`` passed first. Raises what the job failed with."""

    def stop(self, timeout: timedelta | None = None) -> None:
        """End the job between two micro-batches; started again from its checkpoint it goes on from there.

        Waits for the micro-batch that is running, and logs now and then what for. ``timeout``: cancel the
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
