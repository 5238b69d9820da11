"""The jobs that a dashboard shows, and what is known of each."""

from __future__ import annotations

import itertools
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from dsv2.base.folders import Folder
from dsv2.errors import ConfigurationError
from dsv2.jobs.configuration import Section
from dsv2.jobs.live_state import QueryableJob
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.summary import History, JobSummary, Moment, summarize
from dsv2.model.error_policy import ErrorPolicy
from dsv2.plan_view.model import PlanView

if TYPE_CHECKING:
    from dsv2.views.metrics.served import ServedMetrics


class Status(Enum):
    """The status of a job. STORED: it is shown from its checkpoint, which does not tell whether it runs."""

    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "restarting"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    STORED = "stored"


_OVER = (Status.FINISHED, Status.STOPPED, Status.FAILED)
_MOST_JOBS = 20


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """The known state of a job at one time.

    Attributes:
        revision: Increases with each change.
        name: The name of the job.
        status: Its status.
        plan: Its plan. None: not known yet.
        progress: Its progress. None: no micro-batch is complete.
        history: Its last micro-batches.
        configuration: Its configuration, without secrets.
        error: Why it failed. "": it has not.
        updated_at_ms: When the last micro-batch ended, in ms since the epoch. None: none has.
    """

    revision: int = 0
    name: str = ""
    status: Status = Status.STARTING
    plan: PlanView | None = None
    progress: JobProgress | None = None
    history: Sequence[Moment] = ()
    configuration: Sequence[Section] = ()
    error: str = ""
    updated_at_ms: int | None = None

    def summary(self) -> JobSummary:
        """Return its numbers."""
        return summarize(self.plan, self.progress or JobProgress(-1, {}), self.history)


class Record:
    """Collects the progress of a job. It is written by the job and read by the server, and bounded in size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshot = JobSnapshot()
        self._history = History()

    def snapshot(self) -> JobSnapshot:
        """Return what is known now."""
        return self._snapshot

    def describe(self, name: str, plan: PlanView | None, configuration: Sequence[Section]) -> None:
        """Set what does not change while the job runs."""
        with self._lock:
            self._history.describe(plan)
            self._set(name=name, plan=plan, configuration=configuration)

    def add(self, progress: JobProgress) -> None:
        """Add the progress after a micro-batch."""
        with self._lock:
            moment = self._history.add(progress)
            updated = self._snapshot.updated_at_ms
            if moment is not None:
                updated = moment.batch.started_at_ms + round(moment.batch.duration_ms)
            self._set(progress=progress, history=self._history.moments, updated_at_ms=updated)

    def end(self, status: Status, error: str = "") -> None:
        """Set the status, and why the job failed."""
        with self._lock:
            self._set(status=status, error=error)

    def _set(self, **changes: Any) -> None:
        self._snapshot = replace(self._snapshot, revision=self._snapshot.revision + 1, **changes)


class WatchedJob(ABC):
    """A job on the board."""

    def __init__(self) -> None:
        self.record = Record()

    @property
    @abstractmethod
    def actions(self) -> tuple[str, ...]:
        """Return the actions that are possible now: ``stop``, ``savepoint``, ``replay``, ``error-policy``."""

    @abstractmethod
    def refresh(self) -> None:
        """Look for news, if the job does not report them itself. Called by the server, in any of its threads."""

    @abstractmethod
    def letters_folder(self) -> Folder | None:
        """Return the folder of its dead letters, or None if it has none."""

    def stuck_for(self, limit: timedelta) -> str:
        """Return the problem if a micro-batch has run longer than ``limit``; "" if not, or if this is not known."""
        return ""

    def unready(self) -> str:
        """Return why the job is not ready; "": it is, or this is not known."""
        return ""

    def queryable(self) -> QueryableJob:
        """Return the job, whose state can be read. Raises ``ConfigurationError`` if it cannot."""
        raise ConfigurationError("This job is shown from its checkpoint. Take a savepoint, and read the state of that.")

    def stop(self) -> None:
        """Stop the job between two micro-batches."""
        raise ConfigurationError("This job is shown from its checkpoint, so it cannot be stopped here.")

    def savepoint(self, path: str) -> str:
        """Take a savepoint in the folder ``path`` and return its path."""
        raise ConfigurationError(
            f"This job is shown from its checkpoint. Take a savepoint with: dsv2 savepoint create CHECKPOINT {path}"
        )

    def replay(self, ids: Sequence[str] | None) -> str:
        """Process dead letters again, and return a message. None: all that are new."""
        raise ConfigurationError("This job is shown from its checkpoint. Use the command dsv2 dead-letters replay.")

    def change_policy(self, uid: str, policy: ErrorPolicy) -> str:
        """Change the error policy of an operator, and return a message."""
        raise ConfigurationError("This job is shown from its checkpoint, so its error policies cannot be changed here.")


class Board:
    """The jobs of a server, by id. The oldest ones that have ended leave when there are too many.

    ``metrics``: The metrics of the jobs of this process, a listener of them. None: the library is not installed.
    """

    def __init__(self, metrics: ServedMetrics | None = None) -> None:
        self.metrics = metrics
        self._lock = threading.Lock()
        self._jobs: dict[str, WatchedJob] = {}
        self._numbers = itertools.count(1)
        self.is_closing = False
        """True if the server ends. Connections that stay open then end as well."""

    @property
    def jobs(self) -> Mapping[str, WatchedJob]:
        """The jobs, the newest last."""
        return dict(self._jobs)

    def add(self, job: WatchedJob) -> str:
        """Add a job and return its id."""
        with self._lock:
            identifier = str(next(self._numbers))
            jobs = {**self._jobs, identifier: job}
            over = [one for one, other in jobs.items() if other.record.snapshot().status in _OVER]
            for one in over[: max(0, len(jobs) - _MOST_JOBS)]:
                del jobs[one]
            self._jobs = jobs
            return identifier

    def remove(self, identifier: str) -> None:
        """Remove a job that did not start."""
        with self._lock:
            self._jobs = {one: job for one, job in self._jobs.items() if one != identifier}
