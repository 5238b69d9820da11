"""Carries errors of dsv2 from a worker to the caller of ``execute``.

Spark converts an exception of a worker to text. An error of dsv2 therefore leaves the worker with its fields as
hexadecimal JSON at the end of its message, from which the driver rebuilds the exception.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dsv2.errors import ConfigurationError, Dsv2Error, JobError
from dsv2.runtime.report.carried_errors import from_text, to_text
from runtime_spark.frames.tasks import Tasks

_MARK = re.compile(r"dsv2-failure:([0-9a-f]+):")
_CRASHED = re.compile(
    r"Lost task (\d+)\.\d+ in stage [^\n]*\n?[^\n]*Python worker exited unexpectedly "
    r"\(crashed\)(?:(?::| -) (.*?)(?=\n\tat |$))?",
    re.DOTALL,
)
_PLANNER_ENDED = re.compile(
    r"^Caused by: java\.(?:io|net|nio)\.[^\n]*\n(?:\tat [^\n]*\n)*?\tat [^\n]*\.PythonStreamingSourceRunner\.",
    re.MULTILINE,
)
_NO_MESSAGE = re.compile(r"(?<=terminated with exception:) +(?=SQLSTATE)")
_CAUSE = re.compile(r"^Caused by: ([^\n]*)\n\tat ([^\n]*)", re.MULTILINE)
_NO_STATE = "[CANNOT_LOAD_STATE_STORE"
_OF_SPARKS_PROCESSES = "Caused by: org.apache.spark.rpc."
"""The cause if the files are intact, but a process of Spark did not answer another one."""
_NO_MODULE = re.compile(r"ModuleNotFoundError: (No module named .*)")
_IN_PLANNER = re.compile(r"/(python_streaming_source_runner|create_data_source|plan_data_source_read)\.py")
_NOISE = re.compile(r"^An error occurred while calling \w+\.\w+\.\n: |^\t(at |\.\.\. ).*\n?", re.MULTILINE)


class MarkedError(Exception):
    """An error as it leaves a worker. ``job_failure`` reads its message."""


@contextmanager
def marked_failures() -> Iterator[None]:
    """Wrap code that runs in a worker, so that ``job_failure`` can rebuild errors of dsv2."""
    try:
        yield
    except Dsv2Error as error:
        raise MarkedError(f"{error}\ndsv2-failure:{to_text(error).encode().hex()}:") from error


@contextmanager
def usable(what: str) -> Iterator[None]:
    """Wrap the first use of a path that the user named. ``what``: The path as errors name it.

    Raises:
        ConfigurationError: Spark cannot use the path.
    """
    try:
        yield
    except Dsv2Error:
        raise
    except Exception as error:
        raise ConfigurationError(f"{what} cannot be used: {_message(error)}") from error


def job_failure(
    error: BaseException, job_name: str, tasks: Tasks | None = None, failed: Callable[[], list[int]] = list
) -> Dsv2Error:
    """Convert ``error``, which Spark raised, to the error that the user gets.

    Args:
        error: The error.
        job_name: The name of the job.
        tasks: The tasks of the job, to name the subtasks of a lost worker.
        failed: Returns the numbers of the tasks that have failed.
    """
    if isinstance(error, Dsv2Error):
        return error
    if (found := _MARK.search(str(error))) is None:
        return JobError(f"Job {job_name!r} {_explain(error, tasks, failed)}")
    return from_text(bytes.fromhex(found.group(1)).decode())


def _explain(error: BaseException, tasks: Tasks | None, failed: Callable[[], list[int]]) -> str:
    """Explain a failure of Spark itself, with the remedy where one is known."""
    text = str(error)
    if (crashed := _CRASHED.search(text)) is not None:
        return _crash(int(crashed.group(1)), crashed.group(2), tasks)
    stack = str(getattr(error, "_stackTrace", ""))  # of an exception that PySpark has converted
    if _PLANNER_ENDED.search(stack) is not None:
        sources = "" if tasks is None else f": {' or '.join(tasks.sources())}"
        return (
            f"failed: the Python process that plans the reading of a source ended unexpectedly{sources}. It crashed, "
            f"or it was killed, perhaps because memory ran out. Its last output is in the log of the driver. Start the "
            f"job again; it continues from its checkpoint."
        )
    if _NO_STATE in text and _OF_SPARKS_PROCESSES not in text:
        return _state_unreadable(error, tasks, failed)
    if "cannot grow beyond 2GB" in text:
        return (
            "failed: one subtask was sent more than 2 GiB in one micro-batch, which Spark does not support. Read less "
            "per micro-batch (records_per_batch, maxFilesPerTrigger and similar options) or increase the parallelism."
        )
    if "Cannot convert pyarrow.lib.ChunkedArray to pyarrow.lib.Array" in text:
        return (
            "failed: one Spark task returned 2 GiB in one micro-batch, counting records and the state of its subtasks, "
            "which Spark does not support. If most of it is records, read less per micro-batch (records_per_batch, "
            "maxFilesPerTrigger and similar options). If most of it is state, see "
            '"How large state may become" in docs/state.md.'
        )
    if (missing := _NO_MODULE.search(text)) is not None:
        return _not_importable(missing.group(1), in_planner=_IN_PLANNER.search(text) is not None)
    return f"failed in Spark: {_with_cause(_message(error), stack)}"


def _not_importable(module: str, *, in_planner: bool) -> str:
    if in_planner:
        return (
            f"failed: the planner of a source cannot import a module: {module}. Planners are processes on the host of "
            f"the driver. They run the Python that PYSPARK_PYTHON names, by default python3, and import what is "
            f"installed there, or is on the import path of this program. Install the module for that Python."
        )
    return (
        f"failed: a Spark worker cannot import a module: {module}. Workers run the Python that PYSPARK_PYTHON names, "
        f"by default python3, and import modules that are installed there or on PYTHONPATH. Set "
        f"PYSPARK_PYTHON={sys.executable} before the session is created, and put your own modules where workers can "
        f"import them: on a cluster, ship them with --py-files."
    )


def _crash(task: int, stack: str | None, tasks: Tasks | None) -> str:
    found = [] if tasks is None else tasks.subtasks_in(task)
    ran = f" The task runs, one after another: {'; '.join(found)}; or it reads part of a source." if found else ""
    where = (
        f" The stack of the worker:\n{stack.strip()}"
        if stack
        else " To see where native code crashed, set spark.sql.execution.pyspark.udf.faulthandler.enabled to true."
    )
    return (
        f"failed: a Python worker of Spark ended unexpectedly, in task {task} of a stage. It was killed, perhaps "
        f"because memory ran out, or native code crashed, or os._exit was called.{ran}{where}"
    )


def _state_unreadable(error: BaseException, tasks: Tasks | None, failed: Callable[[], list[int]]) -> str:
    numbers = failed()
    of = [] if tasks is None else [name for number in numbers for name in tasks.subtasks_in(number)]
    folders = ", ".join(f"state/<level>/{number}" for number in numbers) or "state"
    return (
        f"failed: the state of {' or '.join(of) or 'a subtask'} cannot be read: a file in {folders} of the checkpoint "
        f"is damaged or missing. Restore the whole checkpoint from a backup, or start from a new checkpoint_location. "
        f"Spark reported: {_message(error)}"
    )


def _with_cause(message: str, stack: str) -> str:
    """Complete ``message`` with the root cause in ``stack``, if the exception of Java has no message of its own."""
    causes = _CAUSE.findall(stack)
    return _NO_MESSAGE.sub(lambda _: f" {' at '.join(causes[-1])} ", message) if causes else message


def _message(error: BaseException) -> str:
    """Return the message of ``error`` without the JVM stack, which Spark Connect adds under a title."""
    return _NOISE.sub("", str(error).partition("\n\nJVM stacktrace:\n")[0]).strip()
