"""A job as one watches it on a terminal: how far it is, and Ctrl-C to end it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from signal import SIGINT, signal
from threading import Event

from dsv2 import JobHandle, JobProgress, JobResult
from examples.console import ProgressLine

__all__ = ("interrupts_noted", "watch")

_BETWEEN_LOOKS = timedelta(milliseconds=250)


@contextmanager
def interrupts_noted() -> Iterator[Event]:
    """For all that is done with Spark: Ctrl-C only sets the event that this gives.

    Within a call to Spark an exception would break the connection, and while Spark starts leave it behind.
    """
    interrupted = Event()
    before = signal(SIGINT, lambda *_: interrupted.set())
    try:
        yield interrupted
    finally:
        signal(SIGINT, before)


def watch(job: JobHandle, text_of: Callable[[JobProgress], str], interrupted: Event) -> JobResult:
    """Show how far ``job`` is until it ends; once ``interrupted`` is set, it ends after the micro-batch in hand.

    ``text_of``: says how far it is in words, once there has been a micro-batch. Raises what the job failed with.
    """
    line = ProgressLine()
    try:
        while not job.await_termination(timeout=_BETWEEN_LOOKS):
            progress = job.progress
            line.show(text_of(progress) if progress.batch_id >= 0 else "Starting ...", progress.batch_id)
            if interrupted.is_set():
                line.show("Stopping ...", progress.batch_id)
                job.stop()
    finally:
        line.clear()
    return job.result()
