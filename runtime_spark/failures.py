"""Carrying an error of ours from a worker to the caller of ``execute``.

Spark turns an exception of a worker into text. So an error of ours leaves the worker with its fields, as hexadecimal
JSON, at the end of its message, and the driver builds the exception again from those.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dsv2.errors
from dsv2.errors import ConfigurationError, Dsv2Error, InternalError, JobError, UserFunctionError
from runtime_spark.tasks import Tasks

__all__ = ("job_failure", "marked_failures", "usable")

_MARK = re.compile(r"dsv2-failure:([0-9a-f]+):")
_CRASHED = re.compile(
    r"Lost task (\d+)\.\d+ in stage [^\n]*\n?[^\n]*Python worker exited unexpectedly "
    r"\(crashed\)(?:(?::| -) (.*?)(?=\n\tat |$))?",
    re.DOTALL,
)
_PLANNER_GONE = re.compile(r"terminated with exception:\s+SQLSTATE")
_NO_STATE = "[CANNOT_LOAD_STATE_STORE"
_NO_MODULE = re.compile(r"ModuleNotFoundError: (No module named .*)")
_NOISE = re.compile(r"^An error occurred while calling \w+\.\w+\.\n: |^\t(at |\.\.\. ).*\n?", re.MULTILINE)


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


@contextmanager
def usable(what: str) -> Iterator[None]:
    """Wrap the first use of a place that the user named: if Spark cannot use it, that is a ``ConfigurationError``."""
    try:
        yield
    except Dsv2Error:
        raise
    except Exception as error:
        raise ConfigurationError(f"{what} cannot be used: {_said(error)}") from error


def job_failure(
    error: BaseException, job_name: str, tasks: Tasks | None = None, failed: Callable[[], list[int]] = list
) -> Dsv2Error:
    """What to tell the user about ``error``, which Spark raised.

    ``tasks``: those of the job, to name what ran where a worker is gone. ``failed``: finds the numbers of those that
    have failed.
    """
    if isinstance(error, Dsv2Error):
        return error
    if (found := _MARK.search(str(error))) is None:
        return JobError(f"Job {job_name!r} {_explained(error, tasks, failed)}")
    fields = json.loads(bytes.fromhex(found.group(1)))
    kind = getattr(dsv2.errors, fields.pop("type"), InternalError)
    if kind is UserFunctionError:
        return UserFunctionError(**fields)
    rebuilt: Dsv2Error = kind(fields["message"])
    return rebuilt


def _explained(error: BaseException, tasks: Tasks | None, failed: Callable[[], list[int]]) -> str:
    """What a failure of Spark's own means, with the way out where it is known."""
    text = str(error)
    if (crashed := _CRASHED.search(text)) is not None:
        return _crash(int(crashed.group(1)), crashed.group(2), tasks)
    if _PLANNER_GONE.search(text) is not None:
        sources = "" if tasks is None else f": that of {' or '.join(tasks.sources())}"
        return (
            f"failed: a Python process that plans the reading of a source ended unexpectedly{sources}. It was killed, "
            f"for want of memory perhaps, or it crashed. Its last words are in the log of the driver. Start the job "
            f"again: it goes on from its checkpoint."
        )
    if _NO_STATE in text:
        return _state_unreadable(error, tasks, failed)
    if "cannot grow beyond 2GB" in text:
        return (
            "failed: one subtask was sent more than 2 GiB in one micro-batch, which Spark cannot do. Read less at a "
            "time (records_per_batch, maxFilesPerTrigger and the like) or raise the parallelism."
        )
    if "Cannot convert pyarrow.lib.ChunkedArray to pyarrow.lib.Array" in text:
        return (
            "failed: one task of Spark returned 2 GiB in one micro-batch, records and the state of its subtasks "
            "together, which Spark cannot do. If it is records, read less at a time (records_per_batch, "
            'maxFilesPerTrigger and the like). If it is state, see "How large state may become" in docs/state.md.'
        )
    if (missing := _NO_MODULE.search(text)) is not None:
        return (
            f"failed: a worker of Spark cannot import what it needs: {missing.group(1)}. Workers run the Python that "
            f"PYSPARK_PYTHON names, or else python3, and import what is installed there or on PYTHONPATH. Before the "
            f"session is made, set PYSPARK_PYTHON={sys.executable}, and put modules of your own where workers find "
            f"them."
        )
    return f"failed in Spark: {_said(error)}"


def _crash(task: int, stack: str | None, tasks: Tasks | None) -> str:
    found = [] if tasks is None else tasks.subtasks_in(task)
    ran = f" In this task run, one after the other: {'; '.join(found)}; or a part of a source." if found else ""
    where = (
        f" The worker was here:\n{stack.strip()}"
        if stack
        else " To see where native code has crashed, set spark.sql.execution.pyspark.udf.faulthandler.enabled to true."
    )
    return (
        f"failed: a Python worker of Spark ended unexpectedly, in task {task} of a stage. It was killed, for want of "
        f"memory perhaps, or native code crashed, or os._exit was called.{ran}{where}"
    )


def _state_unreadable(error: BaseException, tasks: Tasks | None, failed: Callable[[], list[int]]) -> str:
    numbers = failed()
    of = [] if tasks is None else [name for number in numbers for name in tasks.subtasks_in(number)]
    folders = ", ".join(f"state/<level>/{number}" for number in numbers) or "state"
    return (
        f"failed: State of {' or '.join(of) or 'a subtask'} cannot be read: a file in {folders} of the checkpoint is "
        f"damaged or missing. Put back a backup of the whole checkpoint, or start from a new checkpoint_location. "
        f"Spark says: {_said(error)}"
    )


def _said(error: BaseException) -> str:
    """The words of ``error``, without the stack of the JVM."""
    return _NOISE.sub("", str(error)).strip()
