"""A job whose micro-batches follow one another is stopped when Spark has already planned the next one.

Sinks have nothing of that micro-batch, so a changed program may get other records with its number.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from dsv2 import ExecutionEnvironment, JobError, JobHandle, JobStatus
from dsv2.errors import IncompatibleCheckpointError
from dsv2.sinks import ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from runtime_spark.job import query
from runtime_spark.job.query import StreamingJob
from tests.numbering import Numbering
from tests.spark.test_migration import Word, itself, nth_word, word
from tests.support import wait_until

COUNT, PER_BATCH = 60, 15


class Sink:
    """Keeps the records of each micro-batch. Fails in the micro-batch ``fails_in``."""

    def __init__(self) -> None:
        self.written: dict[int, list[Word]] = {}
        self.fails_in: int | None = None

    def __call__(self, records: list[Word], batch_id: int) -> None:
        if batch_id == self.fails_in:
            raise OSError("unreachable")
        assert batch_id not in self.written
        self.written[batch_id] = records


class Job:
    """A job in ``folder``, which can be stopped in a micro-batch that Spark has planned."""

    def __init__(self, spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._spark = spark
        self._monkeypatch = monkeypatch
        self.checkpoint = folder / "checkpoint"
        self.savepoint = folder / "savepoint"
        self.sink = Sink()

    def start(self, parallelism: int, savepoint: Path | None = None) -> JobHandle:
        env = ExecutionEnvironment.get_instance(spark=self._spark)
        words = env.from_source(DataGeneratorSource(word, count=COUNT, records_per_batch=PER_BATCH), "words")
        counted = words.with_uid("words").key_by(itself).process(Numbering(nth_word)).with_uid("count")
        counted.with_parallelism(parallelism).to_sink(ForeachBatchSink(self.sink)).with_uid("out")
        return env.execute_async("words", checkpoint_location=self.checkpoint, savepoint=savepoint)

    def stop_in(self, held: int, *, with_savepoint: bool = False) -> None:
        """Start the job, and stop it when Spark begins the micro-batch ``held``, which sinks do not get."""
        begun = threading.Event()
        write_batch = StreamingJob.write_batch

        def wait_for_the_stop(job: StreamingJob, frames: DataFrame, batch_id: int) -> None:
            if batch_id == held:
                begun.set()
                wait_until(lambda: job._refuse_batches)
            write_batch(job, frames, batch_id)

        with self._monkeypatch.context() as context:
            context.setattr(query, "_PATIENCE_SECONDS", 0.0)
            context.setattr(StreamingJob, "write_batch", wait_for_the_stop)
            handle = self.start(2)
            wait_until(lambda: begun.is_set() or handle.status is not JobStatus.RUNNING)
            if with_savepoint:
                handle.stop_with_savepoint(self.savepoint)
            else:
                handle.stop()
        assert handle.status is JobStatus.STOPPED
        assert list(self.sink.written) == list(range(held))
        assert (self.checkpoint / "offsets" / f"{held}").exists(), "Spark has planned the micro-batch"
        assert not (self.checkpoint / "commits" / f"{held}").exists()

    def assert_complete(self) -> None:
        times: dict[str, int] = {}
        found = [record for batch_id in sorted(self.sink.written) for record in self.sink.written[batch_id]]
        for record in found:
            times[record.word] = times.get(record.word, 0) + 1
            assert record.number == times[record.word]
        assert len(found) == COUNT


@pytest.fixture
def job(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(spark, tmp_path, monkeypatch)


def test_changed_program_continues(job: Job) -> None:
    job.stop_in(1)
    job.start(3).result()
    job.assert_complete()


def test_savepoint_of_the_stop_is_continued(job: Job, tmp_path: Path) -> None:
    job.stop_in(1, with_savepoint=True)
    job.checkpoint = tmp_path / "other"
    job.start(3, savepoint=job.savepoint).result()
    job.assert_complete()


def test_micro_batch_that_has_failed_since_is_not_changed(job: Job) -> None:
    job.stop_in(1)
    job.sink.fails_in = 1
    with pytest.raises(JobError, match="unreachable"):
        job.start(2).result()
    job.sink.fails_in = None
    with pytest.raises(IncompatibleCheckpointError, match="may have written a part of micro-batch 1"):
        job.start(3)
    job.start(2).result()
    job.assert_complete()
