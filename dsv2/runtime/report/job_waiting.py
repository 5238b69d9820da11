"""Waiting for jobs: what keeps the program running meanwhile, and what is logged."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator

_LOG = logging.getLogger(__name__)
_FIRST_LOG_SECONDS = 10.0
_KEEPER_SECONDS = 1.0
_SLICE_SECONDS = 1.0


def slice_until(deadline: float | None) -> float:
    """Return how long ``stop`` waits until it logs or cancels, in s. ``deadline``: A time of ``time.monotonic()``."""
    return _SLICE_SECONDS if deadline is None else max(0.0, min(_SLICE_SECONDS, deadline - time.monotonic()))


class Keeper(threading.Thread):
    """Keeps the program running until a bounded job ends, unless Ctrl-C ends the wait or the job is cancelled."""

    def __init__(self, ends_within: Callable[[float], bool]) -> None:
        super().__init__(name="dsv2-keeper", daemon=False)
        self._ends_within = ends_within
        self._given_up = False

    def run(self) -> None:
        with contextlib.suppress(Exception):  # the handle reports the failure of the job
            while not self._given_up and not self._ends_within(_KEEPER_SECONDS):
                pass

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Wrap the user's own wait for the job."""
        try:
            yield
        except KeyboardInterrupt:
            self.give_up()
            raise

    def give_up(self) -> None:
        """Let the program end before the job."""
        self._given_up = True


class Waiting:
    """Logs what ``stop`` waits for, at intervals that double."""

    def __init__(self, job_name: str, what_runs: Callable[[], str]) -> None:
        self._job_name = job_name
        self._what_runs = what_runs
        self._began = time.monotonic()
        self._next = _FIRST_LOG_SECONDS

    def log(self) -> None:
        waited = time.monotonic() - self._began
        if waited >= self._next:
            self._next *= 2
            _LOG.warning(
                "stop() has waited %d s for the running micro-batch of job %r: %s. To cancel it, call "
                "stop(timeout=...).",
                waited,
                self._job_name,
                self._what_runs(),
            )
