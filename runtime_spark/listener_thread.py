"""Calls the listeners of a streaming job."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from dsv2.graph import Plan
from dsv2.job import JobHandle
from dsv2.progress import JobProgress
from dsv2.runtime.report.job_listeners import JobListeners

__all__ = ("ListenerThread",)

_POLL_SECONDS = 0.5
_WAITING = 100  # micro-batches; a slow listener misses older ones


class ListenerThread(threading.Thread):
    """A thread that calls the listeners of a job, so that they do not delay its micro-batches."""

    def __init__(
        self,
        listeners: JobListeners,
        job: JobHandle,
        plan: Plan,
        is_over: Callable[[], bool],
        settle: Callable[[], None],
    ) -> None:
        """Create the thread.

        Args:
            listeners: The listeners.
            job: The job.
            plan: Its plan.
            is_over: Whether there is no further micro-batch.
            settle: Called when the job is over. Then its status must be final.
        """
        super().__init__(name=f"dsv2-listeners-{plan.job_name}", daemon=True)
        self._listeners = listeners
        self._job = job
        self._plan = plan
        self._is_over = is_over
        self._settle = settle
        self._changed = threading.Condition()
        self._progress: deque[JobProgress] = deque(maxlen=_WAITING)
        self._ending = False

    def add(self, progress: JobProgress) -> None:
        """Called after each micro-batch."""
        with self._changed:
            self._progress.append(progress)
            self._changed.notify()

    def end(self) -> None:
        """Wait until the listeners know that the job has ended. Called when it is over, also by listeners."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        if self.is_alive() and threading.current_thread() is not self:
            self.join()

    def run(self) -> None:
        self._listeners.started(self._job, self._plan)
        while (progress := self._next()) is not None:
            self._listeners.progress(progress)
        try:
            self._settle()
        finally:
            self._listeners.ended(self._job)

    def _next(self) -> JobProgress | None:
        """Wait for the next progress. None: the job is over."""
        with self._changed:
            while not self._progress:
                if self._ending or self._is_over():
                    return self._progress.popleft() if self._progress else None
                self._changed.wait(_POLL_SECONDS)
            return self._progress.popleft()
