"""Jobs whose end the program has not asked for: at its exit, it is warned of those that run on or have failed."""

from __future__ import annotations

import atexit
import contextlib
import warnings

from dsv2.errors import UnfinishedJobWarning
from dsv2.job import JobHandle, JobStatus

__all__ = ("asked", "watch")

_watched: dict[int, tuple[JobHandle, str, str]] = {}


def watch(job: JobHandle, name: str, location: str) -> None:
    """Warn at exit unless somebody asks ``job``, started at ``location``, for its end. Called by ``execute_async``."""
    _watched[id(job)] = job, name, location
    atexit.unregister(_warn)
    atexit.register(_warn)  # last, so that it runs before Spark's connection is closed


def asked(job: JobHandle) -> None:
    """The user waits for ``job``, stops it, or has seen how it ended. Called by the handles."""
    _watched.pop(id(job), None)


def _warn() -> None:
    for job, name, location in list(_watched.values()):
        with contextlib.suppress(Exception):  # Spark is gone already
            _warn_of(job, name, location)


def _warn_of(job: JobHandle, name: str, location: str) -> None:
    match job.status:
        case JobStatus.RUNNING:
            what = "was still running when the program ended, and has been cut off. Wait for it with job.result()"
        case JobStatus.FAILED:
            what = f"failed, and the program never asked for its result. {job.exception()}"
        case _:
            return
    file, _, line = location.rpartition(":")
    warnings.warn_explicit(f"Job {name!r} {what}", UnfinishedJobWarning, file, int(line))
