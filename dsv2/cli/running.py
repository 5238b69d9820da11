"""Runs a job until it ends or a signal stops it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from signal import SIGINT, SIGTERM, Signals, signal
from types import FrameType

from dsv2.errors import Dsv2Error
from dsv2.job import JobHandle, JobStatus
from dsv2.progress import JobProgress

__all__ = ("STOPPED_BY_CTRL_C", "Outcome", "run_job")

STOPPED_BY_CTRL_C = 130
"""The exit code of a program that Ctrl-C has stopped."""

_POLL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job has ended.

    Attributes:
        status: Its last status.
        progress: Its last progress.
        interrupted: Whether Ctrl-C has stopped it.
        error: The error that it failed with, or None.
    """

    status: JobStatus
    progress: JobProgress
    interrupted: bool
    error: Dsv2Error | None


def run_job(start: Callable[[], JobHandle], *, on_spark: bool) -> Outcome:
    """Start a job and wait for its end. SIGINT and SIGTERM stop it after the running micro-batch.

    Args:
        start: Starts the job.
        on_spark: Whether signals must only be noted. An exception within a call to Spark would break the connection to
            its JVM. The local runtime runs in ``start``, which Ctrl-C interrupts.
    """
    with _noted_signals() if on_spark else _no_signals() as noted:
        job = start()
        stopping = False
        while not _has_ended(job):
            if noted and not stopping:
                stopping = True
                print("Stopping after the running micro-batch ...", file=sys.stderr)
                job.stop()
        return Outcome(job.status, job.progress, Signals.SIGINT in noted, job.exception())


def _has_ended(job: JobHandle) -> bool:
    try:
        return job.await_termination(timeout=_POLL)
    except Dsv2Error:
        return True  # the outcome has the error


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Within this context, signals to stop are only added to the list."""
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal(number, note) for number in (SIGINT, SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal(number, handler)


@contextmanager
def _no_signals() -> Iterator[list[int]]:
    yield []
