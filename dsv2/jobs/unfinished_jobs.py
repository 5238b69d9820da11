"""Warns at exit about jobs that still run, or that failed without the program checking their result."""

from __future__ import annotations

import atexit
import contextlib
import warnings
from collections.abc import Iterator

from dsv2.errors import UnfinishedJobWarning
from dsv2.jobs.handle import JobHandle, JobStatus

_watched: dict[int, tuple[JobHandle, str, str]] = {}


def watch(job: JobHandle, name: str, location: str) -> None:
    """Warn at exit about ``job``, started at ``location``, unless ``note_observed`` is called first.

    Called by ``execute_async``.
    """
    _watched[id(job)] = job, name, location
    atexit.unregister(_warn)
    atexit.register(_warn)  # registered last, so it runs before Spark's connection is closed


def note_observed(job: object) -> None:
    """Record that the user waited for ``job``, stopped it, or saw how it ended. Called by the job handles."""
    _watched.pop(id(job), None)


@contextlib.contextmanager
def unobserved_access(job: JobHandle) -> Iterator[None]:
    """Within this context, access to ``job`` does not count as observing it: a listener makes it."""
    watched = _watched.get(id(job))
    try:
        yield
    finally:
        if watched is not None:
            _watched[id(job)] = watched


def _warn() -> None:
    for job, name, location in list(_watched.values()):
        with contextlib.suppress(Exception):  # Spark may have shut down
            _warn_of(job, name, location)


def _warn_of(job: JobHandle, name: str, location: str) -> None:
    match job.status:
        case JobStatus.RUNNING:
            what = (
                "was still running when the program ended. It was terminated; on a server of Spark Connect it "
                "continues. Wait for it with job.result(), or end it with job.stop()."
            )
        case JobStatus.FAILED:
            what = f"failed, and the program never checked its result. {job.exception()}"
        case _:
            return
    file, _, line = location.rpartition(":")
    warnings.warn_explicit(f"Job {name!r} {what}", UnfinishedJobWarning, file, int(line))
