"""Carrying an error of ours from a worker to the caller of ``execute``.

Spark turns an exception of a worker into text. So an error of ours leaves the worker with its fields, as hexadecimal
JSON, at the end of its message, and the driver builds the exception again from those.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager

import dsv2.errors
from dsv2.errors import Dsv2Error, InternalError, JobError, UserFunctionError

__all__ = ("job_failure", "marked_failures")

_MARK = re.compile(r"dsv2-failure:([0-9a-f]+):")


class MarkedError(Exception):
    """Leaves a worker; its message is for ``job_failure``."""


@contextmanager
def marked_failures() -> Iterator[None]:
    """Wrap what runs in a worker: errors of ours leave it in a form that survives the way."""
    try:
        yield
    except Dsv2Error as error:
        fields = error.as_json() if isinstance(error, UserFunctionError) else {"message": str(error)}
        text = json.dumps({"type": type(error).__name__, **fields})
        raise MarkedError(f"{error}\ndsv2-failure:{text.encode().hex()}:") from error


def job_failure(error: BaseException, job_name: str) -> Dsv2Error:
    """What to tell the user about ``error``, which Spark raised."""
    if isinstance(error, Dsv2Error):
        return error
    text = str(error)
    if (found := _MARK.search(text)) is None:
        if "cannot grow beyond 2GB" in text:
            return JobError(
                f"Job {job_name!r}: one subtask was sent more than 2 GiB in one micro-batch, which Spark cannot do. "
                f"Read less at a time (records_per_batch, maxFilesPerTrigger and the like) or raise the parallelism."
            )
        return JobError(f"Job {job_name!r} failed in Spark: {text}")
    fields = json.loads(bytes.fromhex(found.group(1)))
    kind = getattr(dsv2.errors, fields.pop("type"), InternalError)
    if kind is UserFunctionError:
        return UserFunctionError(**fields)
    rebuilt: Dsv2Error = kind(fields["message"])
    return rebuilt
