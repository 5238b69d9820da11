"""A job whose micro-batches follow one another is stopped when Spark has already planned the next one.

Sinks have nothing of that micro-batch, so a changed program may get other records with its number.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from dsv2 import ExecutionEnvironment, IncompatibleCheckpointError, JobError, JobHandle
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from runtime_spark import query
from runtime_spark.query import StreamingJob
from tests.spark.test_migration import Count, Word, itself, word

LONG = 60.0  # seconds until a hanging test fails
COUNT, PER_BATCH = 60, 15


class Sink:
    """Holds the job in its first micro-batch until ``opened`` is set. Fails in the micro-batch ``fails_in``."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()
        self.written: dict[int, list[Word]] = {}
        self.fails_in: int | None = None

    def __call__(self, records: list[Word], batch_id: int) -> None:
        self.entered.set()
        assert self.opened.wait(LONG)
        if batch_id == self.fails_in:
            raise OSError("unreachable")
        assert batch_id not in self.written
        self.written[batch_id] = records


class Job:
    """A job in ``folder`` that is stopped after its first micro-batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.checkpoint = folder / "checkpoint"
        self.savepoint = folder / "savepoint"
        self.sink = Sink()

    def start(self, parallelism: int, savepoint: Path | None = None) -> JobHandle:
        env = ExecutionEnvironment.get_instance(spark=self._spark)
        words = env.from_source(DataGeneratorSource(word, count=COUNT, records_per_batch=PER_BATCH), "words")
        counted = words.with_uid("words").key_by(itself).process(Count()).with_uid("count")
        counted.with_parallelism(parallelism).to_sink(ForeachBatchSink(self.sink)).with_uid("out")
        return env.execute_async("words", checkpoint_location=self.checkpoint, savepoint=savepoint)

    def stop_after_the_first(self, *, with_savepoint: bool) -> None:
        handle = self.start(2)
        assert self.sink.entered.wait(LONG)
        stop = (lambda: handle.stop_with_savepoint(self.savepoint)) if with_savepoint else handle.stop
        stopping = threading.Thread(target=stop)
        stopping.start()
        self.sink.opened.set()
        stopping.join(LONG)
        assert list(self.sink.written) == [0]
        assert (self.checkpoint / "offsets" / "1").exists(), "Spark has planned the next micro-batch"
        assert not (self.checkpoint / "commits" / "1").exists()

    def assert_complete(self) -> None:
        times: dict[str, int] = {}
        found = [record for batch_id in sorted(self.sink.written) for record in self.sink.written[batch_id]]
        for record in found:
            times[record.word] = times.get(record.word, 0) + 1
            assert record.number == times[record.word]
        assert len(found) == COUNT


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(query, "_PATIENCE_SECONDS", 0.0)
    return Job(spark, tmp_path)


def test_changed_program_continues(job: Job) -> None:
    job.stop_after_the_first(with_savepoint=False)
    job.start(3).result()
    job.assert_complete()


def test_savepoint_of_the_stop_is_continued(job: Job, tmp_path: Path) -> None:
    job.stop_after_the_first(with_savepoint=True)
    job.checkpoint = tmp_path / "other"
    job.start(3, savepoint=job.savepoint).result()
    job.assert_complete()


def test_micro_batch_that_failed_before_is_not_changed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.sink.opened.set()
    job.sink.fails_in = 0
    with pytest.raises(JobError, match="unreachable"):
        job.start(2).result()
    write_batch = StreamingJob.write_batch

    def refuse(self: StreamingJob, frames: DataFrame, batch_id: int) -> None:
        self._refuse_batches = True
        write_batch(self, frames, batch_id)

    with monkeypatch.context() as context:
        context.setattr(StreamingJob, "write_batch", refuse)
        job.start(2).await_termination()
    job.sink.fails_in = None
    with pytest.raises(IncompatibleCheckpointError, match="may have written a part of micro-batch 0"):
        job.start(3)
    job.start(2).result()
    job.assert_complete()


def test_micro_batch_that_has_failed_since_is_not_changed(job: Job) -> None:
    job.stop_after_the_first(with_savepoint=False)
    job.sink.fails_in = 1
    with pytest.raises(JobError, match="unreachable"):
        job.start(2).result()
    job.sink.fails_in = None
    with pytest.raises(IncompatibleCheckpointError, match="may have written a part of micro-batch 1"):
        job.start(3)
    job.start(2).result()
    job.assert_complete()
