"""Parallel sinks, which tasks write: records of each subtask, their order, and repeated micro-batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import Collector, JobError, PartitionedContext, RuntimeExecutionMode
from dsv2.runtime.state.key_groups import subtask_of
from dsv2.sinks import CollectSink, ParallelSink, SinkBatch, SinkInfo
from tests.spark.programs import environment

STREAMING = RuntimeExecutionMode.STREAMING
BATCH = RuntimeExecutionMode.BATCH
KEYS = [next(key for key in range(100) if subtask_of(key, 128, 2) == subtask) for subtask in range(2)]


def subtask_for(number: int) -> int:
    """Odd numbers go to subtask 0, even ones to subtask 1."""
    return KEYS[number % 2 == 0]


class Written(NamedTuple):
    """One call of ``write``, as stored in a file."""

    job_id: str
    uid: str
    parallelism: int
    subtask: int
    batch_id: int
    records: list[int]
    timestamps: list[int]


class Folder(ParallelSink[int]):
    """Writes each batch to its own file. Afterwards fails once on the batch ``failing``."""

    def __init__(self, path: Path, failing: tuple[int, int] | None = None) -> None:
        self.path = path
        self.failing = failing

    def begin(self, info: SinkInfo, batch_id: int) -> None:
        if not self.path.exists():
            raise FileNotFoundError(f"{self.path} is not there")
        with (self.path / "begun").open("a") as file:
            file.write(f"{batch_id}\n")

    def write(self, batch: SinkBatch[int]) -> None:
        info, pairs = batch.info, [pair for run in batch.batches for pair in run.pairs()]
        records, timestamps = map(list, zip(*pairs, strict=True))
        written = Written(info.job_id, info.uid, info.parallelism, batch.subtask, batch.batch_id, records, timestamps)
        number = len(list(self.path.glob("*.json")))
        with (self.path / f"{batch.batch_id}-{batch.subtask}-{number}.json").open("x") as file:
            json.dump(written, file)
        if self.failing == (batch.batch_id, batch.subtask):
            raise OSError("the disk is full")


def writes(folder: Path) -> list[Written]:
    """All calls, by batch and subtask."""
    calls = [Written(*json.loads(file.read_text())) for file in folder.glob("*.json")]
    return sorted(calls, key=lambda call: (call.batch_id, call.subtask))


def stamp(record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
    output.collect_and_overwrite_timestamp(record, record * 100)


def run(
    spark: SparkSession, sink: ParallelSink[int], checkpoint: str | None, *, also: CollectSink[int] | None = None
) -> None:
    """12 numbers in 3 micro-batches, the second with even ones only. Without a checkpoint as a BATCH job."""
    env = environment(spark, 2, STREAMING if checkpoint is not None else BATCH)
    numbers = [1, 2, 3, 4, 10, 20, 30, 40, 5, 6, 7, 8]
    source = env.from_collection(numbers, records_per_batch=4).with_parallelism(1)
    stream = source.key_by(subtask_for).process(stamp).with_uid("stamp")
    stream.to_sink(sink).with_uid("folder").with_name("Folder")
    if also is not None:
        stream.to_sink(also)
    env.execute("numbers", checkpoint_location=checkpoint)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "written"
    path.mkdir()
    return path


def test_each_subtask_writes_its_records_in_order(spark: SparkSession, checkpoint: str, folder: Path) -> None:
    also = CollectSink[int]()
    run(spark, Folder(folder), checkpoint, also=also)
    calls = writes(folder)
    assert {(call.uid, call.parallelism) for call in calls} == {("folder", 2)}
    assert {(call.batch_id, call.subtask): call.records for call in calls} == {
        (0, 0): [1, 3],
        (0, 1): [2, 4],
        (1, 1): [10, 20, 30, 40],  # the other subtask has nothing to write
        (2, 0): [5, 7],
        (2, 1): [6, 8],
    }
    assert all(call.timestamps == [record * 100 for record in call.records] for call in calls)
    assert (folder / "begun").read_text() == "0\n"
    assert sorted(also.results) == [1, 2, 3, 4, 5, 6, 7, 8, 10, 20, 30, 40]


def test_failed_batch_is_repeated_with_the_same_records(spark: SparkSession, checkpoint: str, folder: Path) -> None:
    with pytest.raises(JobError) as failed:
        run(spark, Folder(folder, failing=(1, 1)), checkpoint)
    text = str(failed.value)
    assert text.startswith(f"The sink Folder (uid 'folder'), defined at {__file__}:")
    assert text.endswith("failed on batch 1, subtask 1: OSError: the disk is full")
    before = writes(folder)
    run(spark, Folder(folder), checkpoint)
    repeated = [call for call in writes(folder) if call.batch_id == 1]
    assert repeated == [call for call in before if call.batch_id == 1] * 2
    assert len({call.job_id for call in writes(folder)}) == 1
    assert (folder / "begun").read_text().split()[-1] == "1"


def test_another_checkpoint_is_another_job(spark: SparkSession, tmp_path: Path, folder: Path) -> None:
    for checkpoint in (str(tmp_path / "one"), None, None):
        run(spark, Folder(folder), checkpoint)
    assert len({call.job_id for call in writes(folder)}) == 3


def test_failing_begin_fails_the_job_before_writing(spark: SparkSession, checkpoint: str, folder: Path) -> None:
    folder.rmdir()
    with pytest.raises(JobError, match=r"The sink Folder .* failed before batch 0: FileNotFoundError: .* is not there"):
        run(spark, Folder(folder), checkpoint)
