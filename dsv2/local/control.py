"""Requests of a handle to the thread that runs its job."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import TypeVar

from dsv2.base.clock import Clock

T = TypeVar("T")

_LONGEST_WAIT_MS = 50  # until a stop is noticed


class JobControl:
    """Requests to one job. The job looks at them between two micro-batches, and at ``is_cancelled`` within one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._requests: deque[Callable[[], None]] | None = deque()  # None: the job has ended
        self.is_stopping = False
        self.is_cancelled = False
        self._begins_again = False

    def stop(self, *, cancel: bool = False) -> None:
        """End the job before its next micro-batch. ``cancel``: Also end the running one."""
        self.is_cancelled |= cancel
        self.is_stopping = True
        self._wake.set()

    def begin_again(self) -> None:
        """End the run before its next micro-batch, and begin another one."""
        self._begins_again = True
        self._wake.set()

    @property
    def ends_run(self) -> bool:
        """True if the run ends before its next micro-batch."""
        return self.is_stopping or self._begins_again

    def takes_restart(self) -> bool:
        """Called by the job when a run has stopped: whether it begins another one."""
        begins_again, self._begins_again = self._begins_again, False
        return begins_again and not self.is_stopping

    def between_batches(self, action: Callable[[], T]) -> T:
        """Call ``action`` in the job's thread between two micro-batches, or here if the job has ended."""
        outcome: Future[T] = Future()

        def call() -> None:
            try:
                outcome.set_result(action())
            except BaseException as error:
                outcome.set_exception(error)

        with self._lock:
            if self._requests is not None:
                self._requests.append(call)
                self._wake.set()
            has_ended = self._requests is None
        if has_ended:
            call()
        return outcome.result()

    def serve(self) -> None:
        """Called by the job between two micro-batches: do what was requested."""
        self._wake.clear()
        while True:
            with self._lock:
                if not self._requests:
                    return
                request = self._requests.popleft()
            request()

    def end(self) -> None:
        """Called by the job when it has ended."""
        self.serve()
        with self._lock:
            left, self._requests = self._requests or (), None
        for request in left:
            request()

    def waited(self, due_ms: int, clock: Clock) -> bool:
        """Called by the job: wait for a part of the time until ``due_ms``. False: it has passed, or the job stops."""
        left = due_ms - clock.now_ms()
        if left <= 0 or self.ends_run:
            return False
        clock.wait(timedelta(milliseconds=min(left, _LONGEST_WAIT_MS)))
        return True

    def wait(self, seconds: float) -> bool:
        """Called by the job: wait until something is requested. Returns whether it is."""
        return self._wake.wait(seconds)
