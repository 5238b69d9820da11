"""Shows the progress of a job on a terminal, and stops the job on Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from signal import SIGINT, signal
from threading import Event

from dsv2 import JobHandle, JobProgress, JobResult
from examples.console import ProgressLine

__all__ = ("interrupts_noted", "watch")

_POLL_INTERVAL = timedelta(milliseconds=250)


@contextmanager
def interrupts_noted() -> Iterator[Event]:
    """Within this context, Ctrl-C only sets the yielded event. Use it for everything that calls Spark.

    An exception within a call to Spark would break the connection to the JVM, or leave the JVM behind while it starts.
    """
    interrupted = Event()
    before = signal(SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal(SIGINT, before)


def watch(job: JobHandle, text_of: Callable[[JobProgress], str], interrupted: Event) -> JobResult:
    """Show the progress of ``job`` until it ends.

    Args:
        job: The job.
        text_of: Describes the progress after the first micro-batch.
        interrupted: Stops the job after the current micro-batch when it is set.

    Returns:
        The result of the job. Raises the error with which the job failed.
    """
    line = ProgressLine()
    try:
        while not job.await_termination(timeout=_POLL_INTERVAL):
            progress = job.progress
            line.show(text_of(progress) if progress.batch_id >= 0 else "Starting ...", progress.batch_id)
            if interrupted.is_set():
                line.show("Stopping ...", progress.batch_id)
                job.stop()
    finally:
        line.clear()
    return job.result()
