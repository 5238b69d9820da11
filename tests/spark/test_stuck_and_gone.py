"""Jobs that do not continue: a callback or a sink blocks, or the process of a worker or a planner is gone."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, JobError, JobHandle, JobStatus, RuntimeExecutionMode
from dsv2.errors import UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.runtime.report import base_job, job_waiting
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.sources import DataGeneratorSource, Portion
from tests.durations import LONG, ms
from tests.spans import Span, Spans
from tests.spark.programs import environment
from tests.support import wait_until

BATCH, STREAMING = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING
FOREVER = 600.0


class Blocks(OneInputStreamProcessFunction[int, int]):
    """Blocks on one record until a file exists, and creates another file to report it."""

    def __init__(self, folder: Path) -> None:
        self.opened, self.reached = str(folder / "opened"), str(folder / "reached")

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        if record == 7 and not os.path.exists(self.opened):
            Path(self.reached).touch()
            time.sleep(FOREVER)
        output.collect(record)


def build(
    spark: SparkSession, function: Any, mode: RuntimeExecutionMode = STREAMING
) -> tuple[ExecutionEnvironment, CollectSink[int]]:
    env, sink = environment(spark, 2, mode), CollectSink[int]()
    numbers = env.from_source(DataGeneratorSource(abs, count=10)).with_uid("numbers")
    numbers.key_by(lambda number: number % 2).process(function).with_uid("blocks").to_sink(sink).with_uid("out")
    return env, sink


def status_of(job: JobHandle) -> JobStatus:
    return job.status


def test_blocking_callback_is_interrupted_and_named(spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
    env, _ = build(spark, Blocks(tmp_path))
    env.set_callback_timeout(ms(500))
    with pytest.raises(UserFunctionError, match="CallbackTimeout: the callback did not return within 500 ms") as found:
        env.execute(checkpoint_location=checkpoint)
    error = found.value
    assert (error.operator, error.callback) == ("KeyedProcess (uid 'blocks')", "process_record")
    assert (error.key, error.record) == ("1", "7")
    assert "time.sleep(FOREVER)" in error.traceback_text


@pytest.mark.parametrize("mode", [STREAMING, BATCH])
def test_stuck_job_is_reported_and_can_be_cancelled(
    spark: SparkSession,
    checkpoint: str,
    tmp_path: Path,
    mode: RuntimeExecutionMode,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(job_waiting, "_FIRST_LOG_SECONDS", 0.1)
    monkeypatch.setattr(base_job, "_CANCEL_SECONDS", LONG)
    env, _ = build(spark, Blocks(tmp_path), mode)
    job = env.execute_async("stuck", checkpoint_location=checkpoint if mode is STREAMING else None)
    wait_until((tmp_path / "reached").exists)
    job.stop(timeout=timedelta(seconds=2.0))
    assert status_of(job) is JobStatus.STOPPED
    assert job.exception() is None
    assert job.await_termination(timedelta(seconds=LONG)) is True
    said = next(message for message in caplog.messages if message.startswith("stop() has waited"))
    assert "of job 'stuck'" in said
    assert "KeyedProcess (uid 'blocks'), defined at " in said
    assert "call stop(timeout=...)" in said
    if mode is STREAMING:
        (tmp_path / "opened").touch()
        env, sink = build(spark, Blocks(tmp_path))
        env.execute("stuck", checkpoint_location=checkpoint)
        assert sorted(sink.results) == list(range(10))


@pytest.mark.parametrize("mode", [STREAMING, BATCH])
def test_job_can_be_cancelled_before_spark_starts_it(
    spark: SparkSession, checkpoint: str, tmp_path: Path, mode: RuntimeExecutionMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_job, "_CANCEL_SECONDS", LONG)
    env, _ = build(spark, Blocks(tmp_path), mode)
    job = env.execute_async("stuck", checkpoint_location=checkpoint if mode is STREAMING else None)
    job.stop(timeout=timedelta(seconds=0))
    assert status_of(job) is JobStatus.STOPPED
    assert job.await_termination(timedelta(seconds=LONG)) is True


def test_blocking_sink_on_the_driver_is_named(
    spark: SparkSession, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_job, "_CANCEL_SECONDS", 0.5)
    entered, opened = threading.Event(), threading.Event()

    def block(records: list[int], batch_id: int) -> None:
        entered.set()
        assert opened.wait(LONG)

    env = environment(spark)
    env.from_source(DataGeneratorSource(abs, count=None)).to_sink(ForeachBatchSink(block)).with_uid("out")
    job = env.execute_async("stuck", checkpoint_location=checkpoint)
    assert entered.wait(LONG)
    with pytest.raises(JobError, match=r"'stuck' was cancelled but has not ended: the function of the sink .*'out'"):
        job.stop(timeout=timedelta(seconds=0))
    opened.set()
    assert job.await_termination(timedelta(seconds=LONG)) is True
    assert status_of(job) is JobStatus.STOPPED


def leave(record: int, output: Any, ctx: Any) -> None:
    os._exit(3)


class Gone(Spans):
    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        os._exit(3)


def from_spans(spark: SparkSession) -> ExecutionEnvironment:
    env = environment(spark)
    env.from_source(Gone({"a": 3})).with_uid("gone").to_sink(CollectSink())
    return env


LOST_WORKER = ["a Python worker of Spark ended unexpectedly, in task", "KeyedProcess (uid 'blocks'), defined at"]
LOST_PLANNER = ["the Python process that plans the reading of a source ended unexpectedly", "(uid 'gone')"]


@pytest.mark.parametrize("mode", [STREAMING, BATCH])
def test_lost_process_is_named(spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode) -> None:
    cases = [(build(spark, leave, mode)[0], LOST_WORKER)]
    if mode is STREAMING:
        cases.append((from_spans(spark), LOST_PLANNER))
    for env, parts in cases:
        with pytest.raises(JobError) as failed:
            env.execute("gone", checkpoint_location=f"{checkpoint}-{len(parts[0])}" if mode is STREAMING else None)
        assert [part for part in parts if part not in str(failed.value)] == []
