"""What is told about an error that Spark raised."""

from __future__ import annotations

import pytest

from dsv2 import ConfigurationError, JobError, SchemaError
from runtime_spark.failures import job_failure, marked_failures, usable

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


def test_of_an_error_in_the_jvm_its_words_are_told_and_not_its_stack() -> None:
    failure = job_failure(Exception(OF_THE_JVM), "job")
    assert type(failure) is JobError
    assert str(failure) == f"Job 'job' failed in Spark: {ITS_WORDS}"


def test_an_error_of_ours_in_the_text_is_that_error_again() -> None:
    with pytest.raises(Exception, match="dsv2-failure") as left_worker, marked_failures():
        raise SchemaError("it does not fit")
    failure = job_failure(Exception(f"{OF_THE_JVM}{left_worker.value}"), "job")
    assert type(failure) is SchemaError
    assert str(failure) == "it does not fit"
    assert job_failure(failure, "job") is failure


def test_the_way_out_is_told_where_it_is_known() -> None:
    grown = Exception("IllegalStateException: DirectByteBufferOutputStream cannot grow beyond 2GB limit")
    assert "sent more than 2 GiB in one micro-batch" in str(job_failure(grown, "job"))
    returned = Exception("TypeError: Cannot convert pyarrow.lib.ChunkedArray to pyarrow.lib.Array")
    assert "records and the state of its subtasks together" in str(job_failure(returned, "job"))
    missing = Exception("Traceback (most recent call last):\nModuleNotFoundError: No module named 'pyarrow'\n SQLSTATE")
    assert "cannot import what it needs: No module named 'pyarrow'. Workers run the Python" in str(
        job_failure(missing, "job")
    )


def test_a_place_that_spark_cannot_use_is_named() -> None:
    with pytest.raises(ConfigurationError) as refused, usable("The path x"):
        raise OSError(OF_THE_JVM)
    assert str(refused.value) == f"The path x cannot be used: {ITS_WORDS}"
    with pytest.raises(SchemaError, match=r"^ours$"), usable("The path x"):
        raise SchemaError("ours")
