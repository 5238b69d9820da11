"""The running jobs of a process, for metrics."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dsv2.base.clock import Clock, SystemClock
from dsv2.errors import Dsv2Error
from dsv2.graph import Plan
from dsv2.jobs.handle import JobHandle, JobStatus, input_is_bounded
from dsv2.jobs.listener import JobListener
from dsv2.jobs.progress import BatchProgress, HistogramProgress, JobProgress
from dsv2.jobs.summary.event_time import awaiting_event_time
from dsv2.plan_view.view import view_of
from dsv2.runtime.report.metrics import DefaultHistogram, merged
from dsv2.views.metrics import definitions as m
from dsv2.views.metrics.definitions import BATCH_BUCKETS, Sample

_LOG = logging.getLogger(__name__)
_MAX_ENDED = 1000  # names of jobs, in case that each job has another
_ENDS = (JobStatus.FINISHED, JobStatus.STOPPED, JobStatus.FAILED)


@dataclass(slots=True)
class RunningJob:
    """A running job. Its numbers change under the lock of the listener.

    Attributes:
        handle: Its handle.
        plan: Its plan.
        started_at_ms: When it was started, in ms since the epoch.
        progress: Its last progress. None: no micro-batch has completed yet, so its counters are not known.
        batch_seconds: The durations of its micro-batches in this run.
        phase_ms: The time of each phase of its micro-batches in this run, in ms.
        awaiting: The uids of the operators that wait for event time.
        restarts: How often it was restarted after a failure.
    """

    handle: JobHandle
    plan: Plan
    started_at_ms: int
    progress: JobProgress | None = None
    batch_seconds: DefaultHistogram = field(default_factory=lambda: DefaultHistogram("batch", BATCH_BUCKETS))
    phase_ms: Counter[str] = field(default_factory=Counter)
    awaiting: frozenset[str] = frozenset()
    restarts: int = 0

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.plan.job_name

    @property
    def batch_duration(self) -> HistogramProgress:
        """The durations of its micro-batches in this run, in seconds."""
        return merged([self.batch_seconds.parts()])

    @property
    def is_bounded(self) -> bool:
        """True if the job ends by itself."""
        return input_is_bounded(self.plan)

    def copy(self) -> RunningJob:
        """Return a copy that does not change."""
        durations = DefaultHistogram.restored("batch", self.batch_seconds.parts())
        return replace(self, batch_seconds=durations, phase_ms=Counter(self.phase_ms))

    def update(self, progress: JobProgress) -> tuple[BatchProgress, ...]:
        """Note ``progress``, and return the micro-batches that are new. The history also has those of earlier runs."""
        last = progress.batch_id - 1 if self.progress is None else self.progress.batch_id
        new = tuple(batch for batch in progress.batches if batch.batch_id > last)
        for batch in new:
            self.batch_seconds.update(batch.duration_ms / 1000)
            self.phase_ms.update(batch.phases)
        self.progress = progress
        return new


class JobsListener(JobListener):
    """Keeps the running jobs of the environments that it was added to. A job is identified by its name.

    Args:
        clock: The wall clock. None: the system clock.
        per_subtask: Whether metrics of operators are those of each subtask.
        per_split: Whether each split of a source has metrics of its own.
    """

    def __init__(self, clock: Clock | None = None, *, per_subtask: bool = False, per_split: bool = False) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._parts = {"per_subtask": per_subtask, "per_split": per_split}
        self._lock = threading.Lock()
        self._running: dict[str, RunningJob] = {}
        self._ends: dict[str, Counter[JobStatus]] = {}

    def running(self) -> list[RunningJob]:
        """Return what is known of the running jobs now."""
        with self._lock:
            return [job.copy() for job in self._running.values()]

    def ends(self) -> Iterator[Sample]:
        """Return how often each job has ended."""
        with self._lock:
            ends = {name: Counter(of_job) for name, of_job in self._ends.items()}
        for name, of_job in ends.items():
            for status in _ENDS:
                yield Sample(m.JOB_ENDS, {"job_name": name, "status": status.value.lower()}, of_job[status])

    def on_started(self, job: JobHandle, plan: Plan) -> None:
        """Add a job."""
        with self._lock:
            if plan.job_name in self._running:
                _LOG.warning(
                    "Two jobs named %r run in this process. Their metrics have the same labels, so only those of "
                    "one are shown. Give them different names.",
                    plan.job_name,
                )
            self._running[plan.job_name] = RunningJob(
                job, plan, self._clock.now_ms(), awaiting=awaiting_event_time(view_of(plan))
            )
            self._ends.setdefault(plan.job_name, Counter())
            if len(self._ends) > _MAX_ENDED:
                oldest = next((name for name in self._ends if name not in self._running), plan.job_name)
                del self._ends[oldest]

    def on_restarting(self, job: JobHandle, error: Dsv2Error) -> None:
        """Count a restart of a job."""
        with self._lock:
            for running in self._running.values():
                running.restarts += running.handle is job

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        """Note the progress of a job."""
        with self._lock:
            running = next((one for one in self._running.values() if one.handle is job), None)
            if running is None:  # another job has its name
                return
            before = running.progress
            new = running.update(progress)
        self.completed(running, before, new)

    def on_ended(self, job: JobHandle) -> None:
        """Remove a job."""
        with self._lock:
            for name, running in list(self._running.items()):
                if running.handle is job:
                    del self._running[name]
                    self._ends.setdefault(name, Counter())[job.status] += 1

    def completed(self, job: RunningJob, before: JobProgress | None, batches: tuple[BatchProgress, ...]) -> None:
        """Called with the micro-batches that have completed since the progress ``before``."""
