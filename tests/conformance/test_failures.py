"""A failing callback gives the same error on every runtime: operator, callback, subtask, key, record, location."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING, Any

import pytest

from dsv2 import ExecutionEnvironment, RuntimeExecutionMode
from dsv2.errors import UserFunctionError
from dsv2.jobs.handle import JobRuntime
from dsv2.local import LocalRuntime
from dsv2.runtime.state.key_groups import subtask_of
from tests.conformance import failures, failures_contracts
from tests.conformance.failing import ANY, MESSAGE, Failure
from tests.support import our_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAILURES = (*failures.FAILURES, *failures_contracts.FAILURES)
EVERY = pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
# A job on Spark takes seconds. These cover every path of an error. The others are nightly.
EVERYWHERE = (
    "keyed",
    "on_watermark",
    "end_input",
    "open",
    "close",
    "none-key",
    "unhashable-key",
    "broadcast",
    "window-on_trigger",
    "on_event_timer",
    "on_processing_timer",
)


def error_of(failure: Failure, runtime: JobRuntime, mode: RuntimeExecutionMode, **options: Any) -> UserFunctionError:
    env = ExecutionEnvironment.get_instance(runtime)
    env.set_parallelism(2)
    env.set_execution_mode(mode)
    failure.build(env).with_uid("bad")
    with pytest.raises(UserFunctionError) as caught:
        env.execute(failure.name, **options)
    return caught.value


def check(failure: Failure, error: UserFunctionError) -> None:
    key = failure.owner if failure.key is None else int(failure.key)
    operator, subtask = f"{failure.kind} (uid 'bad')", 1 if key is None else subtask_of(key, 128, 2)
    assert (error.operator, error.callback, error.subtask) == (operator, failure.callback, subtask)
    assert (error.cause_type, error.key) == (failure.cause, failure.key)
    assert failure.record is ANY or error.record == failure.record
    file, _, line = error.location.rpartition(":")
    assert linecache.getline(file, int(line)).rstrip().endswith("# here")
    if failure.cause == "ValueError":
        assert error.cause_message == MESSAGE
        assert "in fail\n" in error.traceback_text
        assert not our_files(error.traceback_text)
    for said in (operator, failure.callback, error.location, error.cause_type):
        assert said in str(error)


@EVERY
@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
@pytest.mark.parametrize("batches", [(), (2,)])
def test_local(failure: Failure, mode: RuntimeExecutionMode, batches: tuple[int, ...]) -> None:
    error = error_of(failure, LocalRuntime(batches=batches), mode)
    check(failure, error)
    assert type(error.cause).__name__ == error.cause_type


@pytest.mark.parametrize(
    "failure", [pytest.param(f, id=f.name, marks=() if f.name in EVERYWHERE else pytest.mark.nightly) for f in FAILURES]
)
def test_spark_batch(failure: Failure, spark: SparkSession) -> None:
    from runtime_spark import SparkRuntime

    check(failure, error_of(failure, SparkRuntime(spark), RuntimeExecutionMode.BATCH))


@pytest.mark.parametrize("failure", [f for f in FAILURES if f.name in EVERYWHERE], ids=lambda failure: failure.name)
def test_spark_streaming(failure: Failure, spark: SparkSession, checkpoint: str) -> None:
    from runtime_spark import SparkRuntime

    mode = RuntimeExecutionMode.STREAMING
    check(failure, error_of(failure, SparkRuntime(spark), mode, checkpoint_location=checkpoint))
