"""Restarts from the same checkpoint with a program that only a savepoint carries."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import (
    Collector,
    ExecutionEnvironment,
    JobError,
    JobHandle,
    JobStatus,
    NonPartitionedContext,
    PartitionedContext,
    Trigger,
)
from dsv2.base.folders import LocalFolder
from dsv2.cli import main
from dsv2.errors import ConfigurationError, IncompatibleCheckpointError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.sinks import CollectSink, FileSink
from dsv2.sources import DataGeneratorSource
from runtime_spark import SparkRuntime, create_savepoint
from runtime_spark.checkpoint.lease import Lease
from runtime_spark.sink.file_sinks import SparkFileSinkWriter
from tests.numbering import Numbering, numbered
from tests.profiles import nightly
from tests.spark.programs import read_back
from tests.support import wait_until

COUNT, PER_BATCH = 60, 15


class Word(NamedTuple):
    word: str
    number: int


def word(index: int) -> str:
    return "abcdefg"[index * index % 7]


def never_readable(index: int) -> str:
    raise OSError("not readable yet")


def itself(record: Any) -> Any:
    return record


def nth_word(key: str, record: str, nth: int) -> Word:
    return Word(key, nth)


class Farewell(OneInputStreamProcessFunction[Word, Word]):
    """Emits a word at the end of its input."""

    def process_record(self, record: Word, output: Collector[Word], ctx: PartitionedContext[Word]) -> None:
        pass

    def end_input(self, ctx: NonPartitionedContext[Word]) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(Word("bye", 0)))


class Job:
    """The job in ``folder``, whose program changes from run to run."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.folder = folder
        self.checkpoint = folder / "checkpoint"

    def start(
        self,
        parallelism: int,
        *,
        generator: Any = word,
        further: bool = False,
        layout: Any = "blob",
        trigger: Trigger | None = None,
        **options: Any,
    ) -> JobHandle:
        env = ExecutionEnvironment.get_instance(SparkRuntime(self._spark, state_layout=layout))
        source = DataGeneratorSource(generator, count=COUNT, records_per_batch=PER_BATCH)
        words = env.from_source(source, "words").with_uid("words")
        greetings = env.from_collection([Word("hello", 0)], "greetings").with_uid("greetings")  # ends at once
        greetings.to_sink(FileSink(str(self.folder / "greetings"), schema=Word)).with_uid("greeted")
        if further:
            farewell = greetings.process(Farewell()).with_uid("farewell")
            farewell.to_sink(FileSink(str(self.folder / "farewell"), schema=Word)).with_uid("left")
            words = words.map(itself).with_uid("further")
        counted = words.key_by(itself).process(Numbering(nth_word)).with_uid("count").with_parallelism(parallelism)
        counted.to_sink(FileSink(str(self.folder / "out"), schema=Word)).with_uid("out")
        return env.execute_async("words", checkpoint_location=self.checkpoint, trigger=trigger, **options)

    def one_batch(self, parallelism: int, **options: Any) -> None:
        """Run one micro-batch, and stop."""
        handle = self.start(parallelism, trigger=Trigger.processing_time(timedelta(hours=1)), **options)
        wait_until(lambda: handle.progress.batch_id >= 0 or handle.status is not JobStatus.RUNNING)
        handle.stop()
        handle.await_termination()

    def to_end(self, parallelism: int, **options: Any) -> None:
        self.start(parallelism, **options).result()

    def files(self) -> set[str]:
        """The names in the checkpoint, except of files that exist only while a driver runs."""
        return {file.name for file in self.checkpoint.iterdir() if not file.name.startswith(".")}

    def generations(self) -> list[str]:
        return sorted(file.name for file in self.checkpoint.glob("generations/*"))

    def assert_complete(self) -> None:
        """Check that each occurrence of each word has been numbered once."""
        found = sorted((name, number) for _, name, number in read_back(self.folder / "out"))
        assert found == numbered(map(word, range(COUNT)))


@pytest.fixture(scope="module")
def after_one_batch(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("migration")
    Job(spark, folder).one_batch(1)
    return folder


@pytest.fixture
def job(spark: SparkSession, after_one_batch: Path, tmp_path: Path) -> Job:
    """A job with parallelism 1 that was stopped after its first micro-batch."""
    return Job(spark, Path(shutil.copytree(after_one_batch, tmp_path / "job")))


def test_changed_program_continues_in_the_same_checkpoint(
    job: Job, tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    job.one_batch(3, layout="map")
    assert "its parallelism was 1 and is now 3" in caplog.text
    assert job.generations() == ["1"]
    assert "offsets" in job.files(), "kept until the new generation has a complete micro-batch"
    job.one_batch(3, layout="map")
    assert job.files() == {"dsv2", "generations"}
    assert not (job.checkpoint / "generations" / "1" / "savepoint").exists()
    shutil.move(job.checkpoint, tmp_path / "moved")
    job.checkpoint = tmp_path / "moved"
    job.one_batch(2, further=True)
    assert job.generations() == ["1", "2"]
    create_savepoint(job.checkpoint, tmp_path / "savepoint", spark=spark)
    job.to_end(2, further=True)
    assert job.generations() == ["2"]
    job.assert_complete()
    assert [word for _, word, _ in read_back(job.folder / "farewell")] == ["bye"], "its input had ended before"


def test_failed_first_micro_batch_of_a_generation(job: Job) -> None:
    with pytest.raises(UserFunctionError, match="not readable yet"):
        job.to_end(3, generator=never_readable)
    assert (job.checkpoint / "generations" / "1" / "offsets" / "0").exists()
    job.one_batch(2)
    assert job.generations() == ["1"]
    job.to_end(2)
    job.assert_complete()


def test_start_that_another_driver_overtakes_is_refused(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    acquire, offsets = Lease.acquire, job.checkpoint / "offsets"

    def acquire_too_late(self: Lease) -> None:
        shutil.copy(offsets / "0", offsets / "1")  # the other driver has begun the next micro-batch
        acquire(self)

    monkeypatch.setattr(Lease, "acquire", acquire_too_late)
    for parallelism in (1, 3):  # continues, or would migrate
        with pytest.raises(ConfigurationError, match="Another driver continued from the checkpoint"):
            job.start(parallelism)
        (offsets / "1").unlink()
    assert not (job.checkpoint / "generations/1/offsets").exists()


def test_micro_batch_that_readers_have_seen_is_not_repeated(job: Job) -> None:
    job.one_batch(3)
    shutil.rmtree(job.checkpoint / "generations" / "1" / "commits")
    for parallelism in (1, 3):
        with pytest.raises(IncompatibleCheckpointError, match="already has micro-batch 1, but the state is older"):
            job.start(parallelism)
    assert main(["files", "truncate", str(job.folder / "out"), "--after", "0"]) == 0
    job.to_end(3)
    job.assert_complete()


@pytest.mark.parametrize("file", ["savepoint.json", "job/0.json"])
def test_driver_that_dies_while_it_migrates(job: Job, monkeypatch: pytest.MonkeyPatch, file: str) -> None:
    write = LocalFolder.write

    def die(self: LocalFolder, name: str, data: bytes) -> None:
        if name.endswith(file):
            raise KeyboardInterrupt
        write(self, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalFolder, "write", die)
        with pytest.raises(KeyboardInterrupt):
            job.start(3)
    job.to_end(3)
    job.assert_complete()


class Number(NamedTuple):
    n: int


def itself_numbered(key: Number, record: Number, nth: int) -> Number:
    return record


def number_of(index: int) -> Number:
    return Number(index)


def written(folder: Path) -> list[int]:
    lines = [line for file in folder.glob("*.json") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


@pytest.mark.parametrize("change", ["removed and migrated", *nightly("moved", "savepoint")])
def test_files_of_a_sink_that_is_gone_are_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The driver dies between the commit of micro-batch 2 and the publication of its files."""

    def start(folder: Path | None, parallelism: int = 1, **options: Any) -> list[int]:
        env = ExecutionEnvironment.get_instance(spark=spark)
        source = DataGeneratorSource(number_of, count=50, records_per_batch=10)
        numbers = (
            env.from_source(source).with_uid("in").key_by(itself).process(Numbering(itself_numbered)).with_uid("pass")
        )
        numbers.with_parallelism(parallelism)
        others = CollectSink[Number]()
        numbers.to_sink(others).with_uid("others")
        if folder is not None:
            roll = timedelta(hours=1) if change == "moved" else None
            numbers.to_sink(FileSink(folder, schema=Number, format="json", roll_interval=roll)).with_uid("out")
        env.execute("files", **{"checkpoint_location": tmp_path / "checkpoint"} | options)
        return sorted(record.n for record in others.results)

    publish = SparkFileSinkWriter.publish

    def dies(writer: SparkFileSinkWriter) -> None:
        if (tmp_path / "checkpoint" / "commits" / "2").exists():
            raise OSError("the driver dies")
        publish(writer)

    with monkeypatch.context() as patch:
        patch.setattr(SparkFileSinkWriter, "publish", dies)
        with pytest.raises(JobError, match="the driver dies"):
            start(tmp_path / "a")
    assert not set(range(20, 30)) & set(written(tmp_path / "a"))
    if change == "removed and migrated":
        rest = start(None, parallelism=2)
    elif change == "moved":
        start(tmp_path / "b")
        rest = written(tmp_path / "b")
    else:
        savepoint = create_savepoint(tmp_path / "checkpoint", tmp_path / "savepoint", spark=spark)
        start(tmp_path / "b", savepoint=savepoint, checkpoint_location=tmp_path / "second")
        rest = written(tmp_path / "b")
    assert written(tmp_path / "a") == [*range(30)]
    assert rest == [*range(30, 50)]
