"""A running job of this process, which reports its progress itself."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from dsv2.base.folders import Folder
from dsv2.base.quantities import counted
from dsv2.dead_letters import DeadLetters
from dsv2.dead_letters.letters import LetterStatus
from dsv2.dead_letters.location import letters_path
from dsv2.errors import ConfigurationError, Dsv2Error
from dsv2.graph import Plan
from dsv2.jobs.configuration import configuration_of, redacted_text
from dsv2.jobs.dashboard_settings import Dashboard
from dsv2.jobs.handle import JobHandle, JobRuntime, RestartableJob, RunOptions, TimedJob
from dsv2.jobs.listener import JobListener
from dsv2.jobs.live_state import QueryableJob
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.unfinished_jobs import unobserved_access
from dsv2.model.error_policy import ErrorPolicy
from dsv2.plan_view.runtime_view import ExplainingRuntime, ObservableRuntime
from dsv2.plan_view.view import view_of
from dsv2.views.dashboard.jobs import Status, WatchedJob
from dsv2.views.dashboard.server import server_of

_ACTIVE = (Status.RUNNING, Status.RESTARTING)


class LiveJob(WatchedJob, JobListener):
    """A job that is about to start.

    Args:
        plan: Its plan.
        options: The arguments of ``execute``.
        runtime: Its runtime.
    """

    def __init__(self, plan: Plan, options: RunOptions, runtime: object) -> None:
        super().__init__()
        self._job: JobHandle | None = None
        self._has_completed = False  # a micro-batch since its start or restart
        self._runtime = runtime if isinstance(runtime, ObservableRuntime) else None
        self._letters = letters_path(plan, options.dead_letters, options.checkpoint_location)
        settings = {} if self._runtime is None else self._runtime.configuration()
        view = view_of(plan, runtime.runtime_view(plan) if isinstance(runtime, ExplainingRuntime) else None)
        self.record.describe(plan.job_name, view, configuration_of(plan, options, settings))

    def on_started(self, job: JobHandle, plan: Plan) -> None:
        self._job = job
        self.record.end(Status.RUNNING)

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        self.record.add(progress)
        if not self._has_completed:
            self._has_completed = True
            self.record.end(Status.RUNNING)

    def on_restarting(self, job: JobHandle, error: Dsv2Error) -> None:
        self._has_completed = False
        self.record.end(Status.RESTARTING, _text_of(error))

    def on_ended(self, job: JobHandle) -> None:
        with unobserved_access(job):
            error = job.exception()
        self.record.end(Status(job.status.value.lower()), "" if error is None else _text_of(error))

    @property
    def actions(self) -> tuple[str, ...]:
        if self.record.snapshot().status not in _ACTIVE:
            return ()
        job: object = self._job
        return ("stop", "savepoint", *(("replay", "error-policy") if isinstance(job, RestartableJob) else ()))

    def stuck_for(self, limit: timedelta) -> str:
        job: object = self._job
        snapshot = self.record.snapshot()
        if snapshot.status is not Status.RUNNING or not isinstance(job, TimedJob):
            return ""
        is_stuck = job.batch_ms > limit.total_seconds() * 1000
        return f"A micro-batch of the job {snapshot.name!r} takes longer than {limit}." if is_stuck else ""

    def unready(self) -> str:
        snapshot = self.record.snapshot()
        is_ready = snapshot.status is Status.RUNNING and self._has_completed
        if is_ready or snapshot.status in (Status.FINISHED, Status.STOPPED):
            return ""
        return f"The job {snapshot.name!r} is {snapshot.status.value}: no micro-batch is complete."

    def refresh(self) -> None:
        """The job reports its progress itself."""

    def letters_folder(self) -> Folder | None:
        if self._letters is None or self._runtime is None:
            return None
        return self._runtime.open_folder(self._letters)

    def queryable(self) -> QueryableJob:
        job: object = self._job
        if not isinstance(job, QueryableJob):
            raise ConfigurationError("This is a BATCH job, which has no checkpoint with state.")
        return job

    def stop(self) -> None:
        self._running().stop()

    def savepoint(self, path: str) -> str:
        return self._running().savepoint(path)

    def replay(self, ids: Sequence[str] | None) -> str:
        job, folder = self._restartable(), self.letters_folder()
        letters = None if folder is None else DeadLetters(folder)
        new = [] if letters is None else [one for one in letters.letters if letters.status(one) is LetterStatus.NEW]
        found = [one for one in new if ids is None or one.id in ids]
        if letters is None or not found or (ids is not None and len(found) < len(set(ids))):
            raise ConfigurationError("There are no such dead letters that could be processed again.")
        letters.request_replay(found)
        job.restart()
        return f"{counted(len(found), 'letter')} will be processed again: the job begins again from its checkpoint."

    def change_policy(self, uid: str, policy: ErrorPolicy) -> str:
        self._restartable().restart({uid: policy})
        return "The job begins again from its checkpoint with this policy, until this process ends."

    def _restartable(self) -> RestartableJob:
        job: object = self._running()
        if not isinstance(job, RestartableJob):
            raise ConfigurationError("This is possible on the local runtime only. Stop the job, and start it again.")
        return job

    def _running(self) -> JobHandle:
        if self._job is None or not self.actions:
            raise ConfigurationError("The job does not run.")
        return self._job


def _text_of(error: Dsv2Error) -> str:
    return redacted_text(f"{type(error).__name__}: {error}")


class DashboardRuntime:
    """A runtime whose jobs are on a dashboard, which listens when this object has been created.

    Args:
        runtime: The runtime.
        dashboard: The port, or the settings.

    Raises:
        ConfigurationError: The settings are invalid, the extra is not installed, or the port is in use.
    """

    def __init__(self, runtime: JobRuntime, dashboard: Dashboard | int) -> None:
        self._runtime = runtime
        self._server, is_new = server_of(Dashboard.of(dashboard))
        if is_new:
            print(f"Dashboard: {self._server.url}", file=sys.stderr, flush=True)

    def start(self, plan: Plan, options: RunOptions) -> JobHandle:
        """Start ``plan``, and show it."""
        job = LiveJob(plan, options, self._runtime)
        board = self._server.board
        identifier = board.add(job)
        metrics = () if board.metrics is None else (board.metrics,)
        listeners = (*options.listeners, job, *metrics)
        try:
            return self._runtime.start(plan, replace(options, listeners=listeners))
        except BaseException:
            if job.record.snapshot().status is Status.STARTING:  # it was refused
                board.remove(identifier)
            raise
