"""Calls the listeners of a job."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from dsv2.errors import Dsv2Error
from dsv2.graph import Plan
from dsv2.jobs.handle import JobHandle
from dsv2.jobs.listener import JobListener
from dsv2.jobs.progress import JobProgress

_LOG = logging.getLogger("dsv2.job")


class JobListeners:
    """Calls the listeners of one job, one after the other. Their exceptions are logged.

    Called by the thread of the job, or by one thread that the job has for this purpose.
    """

    def __init__(self, listeners: Sequence[JobListener]) -> None:
        self._listeners = listeners
        self._job: JobHandle
        self._thread: threading.Thread | None = None  # the one that calls ``ended``
        self._has_ended = threading.Event()

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def started(self, job: JobHandle, plan: Plan) -> None:
        """Called first, when the job is running."""
        self._job = job
        self._call("on_started", lambda listener: listener.on_started(job, plan))

    def progress(self, progress: JobProgress) -> None:
        """Called after each micro-batch."""
        self._call("on_progress", lambda listener: listener.on_progress(self._job, progress))

    def restarting(self, error: Dsv2Error) -> None:
        """Called when the job has failed, and before it begins again."""
        self._call("on_restarting", lambda listener: listener.on_restarting(self._job, error))

    def ended(self, job: JobHandle) -> None:
        """Called once, when the status of the job is final. Then those who wait for its end continue."""
        self._thread = threading.current_thread()
        try:
            self._call("on_ended", lambda listener: listener.on_ended(job))
        finally:
            self._has_ended.set()

    def await_ended(self, seconds: float | None) -> bool:
        """Wait until all listeners know that the job has ended; False if ``seconds`` passed first.

        A listener that asks for the result of the job in ``on_ended`` does not wait.
        """
        return threading.current_thread() is self._thread or self._has_ended.wait(seconds)

    def _call(self, name: str, call: Callable[[JobListener], None]) -> None:
        for listener in self._listeners:
            try:
                call(listener)
            except Exception:
                _LOG.exception("%s of the job listener %r failed. The job is not affected.", name, listener)
