"""Error messages for errors that Spark raised."""

from __future__ import annotations

import pytest

from dsv2 import JobError
from dsv2.errors import ConfigurationError, SchemaError
from dsv2.sinks import CollectSink
from runtime_spark.frames.failures import job_failure, marked_failures, usable
from runtime_spark.frames.layout import Layout
from runtime_spark.frames.tasks import Tasks
from tests.support import local_environment, one_input

OF_THE_JVM = (
    "An error occurred while calling o1019.text.\n"
    ": org.apache.spark.SparkException: first line\n"
    "second line\n"
    "\tat org.apache.hadoop.fs.FileSystem.get(FileSystem.java:558)\n"
    "\tat org.apache.hadoop.fs.Path.getFileSystem(Path.java:373)\n"
    "Caused by: java.io.IOException: the reason\n"
    "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
    "\t... 34 more\n"
)
ITS_WORDS = "org.apache.spark.SparkException: first line\nsecond line\nCaused by: java.io.IOException: the reason"


def test_jvm_error_is_shown_without_its_stack() -> None:
    failure = job_failure(Exception(OF_THE_JVM), "job")
    assert type(failure) is JobError
    assert str(failure) == f"Job 'job' failed in Spark: {ITS_WORDS}"


def test_error_of_spark_connect_is_shown_without_its_stack() -> None:
    failure = job_failure(Exception("it is active\n\nJVM stacktrace:\njava.lang.Illegal\n\tat a.B.c(B.scala:1)"), "job")
    assert str(failure) == "Job 'job' failed in Spark: it is active"


def test_own_error_in_the_text_is_restored() -> None:
    with pytest.raises(Exception, match="dsv2-failure") as left_worker, marked_failures():
        raise SchemaError("it does not fit")
    failure = job_failure(Exception(f"{OF_THE_JVM}{left_worker.value}"), "job")
    assert type(failure) is SchemaError
    assert str(failure) == "it does not fit"
    assert job_failure(failure, "job") is failure


def test_known_errors_have_a_remedy() -> None:
    grown = Exception("IllegalStateException: DirectByteBufferOutputStream cannot grow beyond 2GB limit")
    assert "sent more than 2 GiB in one micro-batch" in str(job_failure(grown, "job"))
    returned = Exception("TypeError: Cannot convert pyarrow.lib.ChunkedArray to pyarrow.lib.Array")
    assert "counting records and the state of its subtasks" in str(job_failure(returned, "job"))
    missing = Exception("Traceback (most recent call last):\nModuleNotFoundError: No module named 'pyarrow'\n SQLSTATE")
    assert "cannot import a module: No module named 'pyarrow'. Workers run the Python" in str(
        job_failure(missing, "job")
    )


def test_missing_module_of_a_planner_is_not_blamed_on_workers() -> None:
    lost = Exception(
        "[PYTHON_DATA_SOURCE_ERROR] Failed when Python data source instance dsv2: Traceback (most recent call last):\n"
        '  File "/opt/pyspark/sql/streaming/python_streaming_source_runner.py", line 9, in main\n'
        "ModuleNotFoundError: No module named 'orders'\n"
    )
    said = str(job_failure(lost, "job"))
    assert "the planner of a source cannot import a module: No module named 'orders'" in said
    assert "on the host of the driver" in said


CRASHED = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage failure: Task 1 in "
    "stage 4.0 failed 1 times, most recent failure: Lost task 1.0 in stage 4.0 (TID 6) (host executor driver): "
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed){more}\n"
    "\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.read(PythonRunner.scala:1)\n"
    "Driver stacktrace: SQLSTATE: XXKST"
)
STACK = """Fatal Python error: Segmentation fault

Current thread 0x00007f (most recent call first):
  File "job.py", line 7 in dies"""


def tasks() -> Tasks:
    """The tasks of two chains with two subtasks each. The second chain has two operators."""
    env = local_environment(2)
    numbers = env.from_collection([1], "numbers").with_uid("numbers")
    counted = numbers.key_by(str).process(one_input(process_record=print)).with_uid("count")
    both = counted.key_by(str).process(one_input(process_record=print)).with_uid("total")
    both.to_sink(CollectSink()).with_uid("out")
    plan = env.build_plan()
    return Tasks(plan, Layout.of(plan))


def test_lost_worker_names_the_subtasks_of_its_task() -> None:
    more = ". Consider setting 'spark.sql.execution.pyspark.udf.faulthandler.enabled' to 'true'."
    text = str(job_failure(Exception(CRASHED.format(more=more)), "job", tasks()))
    assert "Job 'job' failed: a Python worker of Spark ended unexpectedly, in task 1 of a stage." in text
    named = [uid for uid in ("numbers", "count", "total", "out") if f"(uid '{uid}'), defined at {__file__}" in text]
    assert named == ["count", "total"]
    assert ", subtask 1;" in text
    assert ", subtask 0" not in text
    assert "set spark.sql.execution.pyspark.udf.faulthandler.enabled to true" in text
    assert "BasePythonRunner" not in text


@pytest.mark.parametrize("before", [": ", " - "])
def test_stack_of_a_lost_worker_is_shown(before: str) -> None:
    text = str(job_failure(Exception(CRASHED.format(more=before + STACK)), "job", tasks()))
    assert text.endswith(f"The stack of the worker:\n{STACK}")


class QueryError(Exception):
    """As PySpark's ``StreamingQueryException``, which can be printed only while a session runs."""

    def __init__(self, message: str, cause: str, *frames: str) -> None:
        super().__init__(
            f"[STREAM_FAILED] Query [id = 1] terminated with exception: {message} SQLSTATE: XXKST\n=== more"
        )
        stack = "".join(f"\n\tat {frame}" for frame in frames)
        self._stackTrace = f"org.apache.spark.Failure: {self}\n\tat run(A.scala:1)\nCaused by: {cause}{stack}\n"


READ = "java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)"
PLANNER = "org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.latestOffset(A.scala:235)"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("", "java.io.EOFException"),
        ("Broken pipe", "java.io.IOException: Broken pipe"),
        ("Connection reset", "java.net.SocketException: Connection reset"),
        ("", "java.nio.channels.ClosedChannelException"),
    ],
)
def test_lost_planner_names_the_sources(message: str, cause: str) -> None:
    gone = QueryError(message, cause, READ, PLANNER, "java.lang.Thread.run(Thread.java:840)")
    text = str(job_failure(gone, "job", tasks()))
    assert "the Python process that plans the reading of a source ended unexpectedly: numbers, defined at" in text
    assert job_failure(gone, "job").args[0].startswith("Job 'job' failed: the Python process")


def test_failure_without_a_message_names_its_cause() -> None:
    failed = QueryError("", "java.io.EOFException", READ, "org.apache.spark.Log.read(Log.scala:1)")
    text = str(job_failure(failed, "job", tasks()))
    assert text.startswith("Job 'job' failed in Spark: [STREAM_FAILED] Query [id = 1] terminated with ")
    assert f"terminated with exception: java.io.EOFException at {READ} SQLSTATE: XXKST" in text


def unreadable(cause: str) -> Exception:
    """The error of Spark if the state of a subtask cannot be read."""
    return Exception(
        "org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred.  SQLSTATE: 58030\n"
        f"\tat org.apache.spark.sql.errors\nCaused by: {cause}"
    )


def test_unreadable_state_names_subtasks_and_folder() -> None:
    error = unreadable("java.io.EOFException: Stream ended prematurely")
    text = str(job_failure(error, "job", tasks(), lambda: [1]))
    assert text.startswith("Job 'job' failed: the state of KeyedProcess (uid 'count'), defined at ")
    assert ", subtask 1 or KeyedProcess (uid 'total'), defined at " in text
    assert "a file in state/<level>/1 of the checkpoint is damaged or missing. Restore the whole checkpoint" in text
    assert text.endswith("Caused by: java.io.EOFException: Stream ended prematurely")
    assert "the state of a subtask cannot be read: a file in state of the checkpoint" in str(job_failure(error, "job"))


def test_state_is_not_called_damaged_if_a_process_does_not_answer() -> None:
    error = unreadable("org.apache.spark.rpc.RpcEndpointNotFoundException: Cannot find it")
    text = str(job_failure(error, "job", tasks(), lambda: [1]))
    assert text.startswith("Job 'job' failed in Spark: org.apache.spark.SparkException: [CANNOT_LOAD_STATE_STORE")
    assert text.endswith("Caused by: org.apache.spark.rpc.RpcEndpointNotFoundException: Cannot find it")


def test_unusable_path_is_named() -> None:
    with pytest.raises(ConfigurationError) as refused, usable("The path x"):
        raise OSError(OF_THE_JVM)
    assert str(refused.value) == f"The path x cannot be used: {ITS_WORDS}"
    with pytest.raises(SchemaError, match=r"^ours$"), usable("The path x"):
        raise SchemaError("ours")
