"""The handle of a job that runs, stops, ends and fails."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from dsv2 import (
    Collector,
    JobError,
    JobHandle,
    JobStatus,
    NonPartitionedContext,
    PartitionedContext,
    RuntimeExecutionMode,
    Trigger,
)
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.watermark import WatermarkDeclaration, new_builder
from runtime_spark.job import query
from runtime_spark.job.query import StreamingJob
from tests.durations import LONG
from tests.job_recorder import JobRecorder
from tests.spark.programs import environment
from tests.support import pass_on, wait_until

BATCH, STREAMING = RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING
HIGHEST = new_builder("highest").type_long().combine_function_max().build()


class Announce(OneInputStreamProcessFunction[int, int]):
    """Forwards even numbers, and sends every number as a watermark."""

    def __init__(self) -> None:
        self.seen = 0

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [HIGHEST]

    def open(self, ctx: NonPartitionedContext[int]) -> None:
        ctx.metric_group.counter("sum")

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        ctx.metric_group.counter("sum").inc(record)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(HIGHEST.new_watermark(record))
        if record % 2 == 0:
            output.collect(record)


class Gate:
    """A sink function that holds the job in its first micro-batch until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, records: list[int], batch_id: int) -> None:
        self.entered.set()
        assert self.opened.wait(LONG)
        if records and max(records) > 1_000:
            raise OverflowError("too large")


def status_of(job: JobHandle) -> JobStatus:
    """Through a call, because a type checker assumes that the status does not change."""
    return job.status


def start(
    spark: SparkSession,
    gate: Gate,
    checkpoint: str,
    *,
    mode: RuntimeExecutionMode = STREAMING,
    first: int = 0,
    count: int | None = 10,
    recorder: JobRecorder | None = None,
) -> JobHandle:
    """Two levels after ten numbers starting at ``first``, or after unbounded ones for ``count=None``."""
    env = environment(spark, 2, mode)
    if recorder is not None:
        env.add_job_listener(recorder)
    numbers = env.from_source(DataGeneratorSource(lambda index: first + index, count=count, records_per_batch=5))
    announced = numbers.process(Announce()).with_uid("announce").with_name("Announce")
    announced.global_().process(pass_on).with_uid("all").to_sink(ForeachBatchSink(gate))
    return env.execute_async("watched", checkpoint_location=checkpoint if mode is STREAMING else None)


@pytest.mark.parametrize("mode", [STREAMING, BATCH])
def test_job_that_ends(spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode) -> None:
    gate, recorder = Gate(), JobRecorder("all")
    job = start(spark, gate, checkpoint, mode=mode, recorder=recorder)
    assert gate.entered.wait(LONG)
    assert status_of(job) is JobStatus.RUNNING
    assert job.exception() is None
    assert job.progress.batch_id == -1
    assert not any(operator.records_in + operator.records_out for operator in job.progress.operators.values())
    assert job.await_termination(timedelta(seconds=0.05)) is False
    gate.opened.set()
    assert job.await_termination(timedelta(seconds=LONG)) is True
    assert status_of(job) is JobStatus.FINISHED
    assert job.exception() is None

    result = job.result()
    assert result.job_name == "watched"
    assert result.duration > timedelta(0)
    assert result.progress == job.progress
    assert job.progress.batch_id == (1 if mode is STREAMING else 0)
    announce, everything = job.progress.operators["announce"], job.progress.operators["all"]
    assert (announce.name, announce.records_in, announce.records_out) == ("Announce", 10, 5)
    assert (everything.name, everything.records_in, everything.records_out) == ("Global Process", 5, 5)
    assert announce.counters == {"sum": 45}
    assert announce.watermarks == {}  # it receives none
    # MAX over both channels: 9, and then 8 or still 9, depending on which channel ended first.
    (combined,) = everything.watermarks["highest"]
    assert combined in (8, 9)
    job.stop()  # nothing to stop
    assert status_of(job) is JobStatus.FINISHED
    batches = [(0, 3), (1, 5)] if mode is STREAMING else [(0, 5)]
    assert recorder.events == [("started", "RUNNING", "watched"), *batches, ("ended", "FINISHED")]
    assert recorder.result is not None
    assert recorder.result.progress == result.progress


def test_job_that_is_stopped(spark: SparkSession, checkpoint: str) -> None:
    gate, recorder = Gate(), JobRecorder("all")
    job = start(spark, gate, checkpoint, count=None, recorder=recorder)
    assert isinstance(job, StreamingJob)
    assert job.query.name == "watched"  # Spark's own handle, for other information
    assert gate.entered.wait(LONG)
    stopping = threading.Thread(target=job.stop)
    stopping.start()
    assert status_of(job) is JobStatus.RUNNING, "it is not stopped within a micro-batch"
    gate.opened.set()
    stopping.join(LONG)
    assert status_of(job) is JobStatus.STOPPED
    assert job.exception() is None
    assert job.await_termination(timedelta(seconds=LONG)) is True
    assert job.result().progress.batch_id >= 0
    assert not job.query.isActive
    assert recorder.events[0] == ("started", "RUNNING", "watched")
    assert recorder.events[-1] == ("ended", "STOPPED")
    assert [event[0] for event in recorder.events[1:-1]] == list(range(job.progress.batch_id + 1))


@pytest.mark.parametrize("mode", [STREAMING, BATCH])
def test_job_that_fails(spark: SparkSession, checkpoint: str, mode: RuntimeExecutionMode) -> None:
    gate, recorder = Gate(), JobRecorder("all")
    job = start(spark, gate, checkpoint, mode=mode, first=1_000, recorder=recorder)
    gate.opened.set()
    with pytest.raises(JobError, match=r"^The function of the sink Sink.* raised on batch 0: OverflowError: too large"):
        job.await_termination(timedelta(seconds=LONG))
    assert status_of(job) is JobStatus.FAILED
    failure = job.exception()
    assert isinstance(failure, JobError)
    with pytest.raises(JobError) as raised:
        job.result()
    assert raised.value is failure
    assert job.progress.batch_id == -1
    job.stop()
    assert status_of(job) is JobStatus.FAILED
    assert recorder.events == [("started", "RUNNING", "watched"), ("ended", "FAILED")]


def test_batch_job_cannot_be_stopped_half_way(spark: SparkSession, checkpoint: str) -> None:
    gate = Gate()
    job = start(spark, gate, checkpoint, mode=BATCH)
    assert gate.entered.wait(LONG)
    stopping = threading.Thread(target=job.stop)
    stopping.start()
    gate.opened.set()
    stopping.join(LONG)
    assert status_of(job) is JobStatus.FINISHED
    assert job.progress.operators["all"].records_in == 5


def start_beside(
    spark: SparkSession, checkpoint: str, *, direct: int, processed: int, gate: Gate | None = None
) -> tuple[JobHandle, CollectSink[int], CollectSink[int]]:
    """Start a job with a source that only a sink reads, beside one that a function reads.

    Both collect their records, of which there are ``direct`` and ``processed``, in micro-batches of 4. ``gate`` holds
    the job in its first micro-batch.
    """
    env = environment(spark)
    to_sink, to_function = CollectSink[int](), CollectSink[int]()
    source = env.from_source(DataGeneratorSource(lambda index: index, count=direct, records_per_batch=4))
    source.with_uid("direct").to_sink(to_sink)
    other = env.from_source(DataGeneratorSource(lambda index: index, count=processed, records_per_batch=4))
    other.process(pass_on).with_uid("pass").to_sink(to_function)
    if gate is not None:
        source.to_sink(ForeachBatchSink(gate))
    trigger = Trigger.processing_time()  # Spark does not end such a query by itself
    return env.execute_async("beside", checkpoint_location=checkpoint, trigger=trigger), to_sink, to_function


def test_source_that_ended_in_an_earlier_run_is_not_waited_for(
    spark: SparkSession, checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "_PATIENCE_SECONDS", 0.0)
    gate = Gate()
    job, direct, processed = start_beside(spark, checkpoint, direct=4, processed=40, gate=gate)
    assert gate.entered.wait(LONG)
    stopping = threading.Thread(target=job.stop)
    stopping.start()
    wait_until(lambda: isinstance(job, StreamingJob) and job._refuse_batches)
    gate.opened.set()
    stopping.join(LONG)
    assert (status_of(job), sorted(direct.results)) == (JobStatus.STOPPED, [0, 1, 2, 3])
    before = len(processed.results)
    assert before < 40
    job, direct, processed = start_beside(spark, checkpoint, direct=4, processed=40, gate=gate)
    assert job.await_termination(timedelta(seconds=LONG)) is True
    assert (job.status, direct.results) == (JobStatus.FINISHED, [])
    assert sorted(processed.results) == list(range(before, 40))


def test_source_that_only_a_sink_reads_is_read_to_its_end_once(spark: SparkSession, checkpoint: str) -> None:
    for numbers, others in ((range(21), range(8)), (range(0), range(0))):
        job, direct, processed = start_beside(spark, checkpoint, direct=21, processed=8)
        assert job.await_termination(timedelta(seconds=LONG)) is True
        assert job.status is JobStatus.FINISHED
        assert (sorted(direct.results), sorted(processed.results)) == ([*numbers], [*others])
