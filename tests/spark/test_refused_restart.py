"""Checkpoints that a job must refuse: of another program, of another query, or damaged."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

import runtime_spark.compiler
from dsv2 import Collector, ExecutionEnvironment, PartitionedContext
from dsv2.base.folders import LocalFolder
from dsv2.errors import CorruptDataError, IncompatibleCheckpointError, UserFunctionError
from dsv2.functions import OneInputStreamProcessFunction
from runtime_spark import SparkRuntime
from runtime_spark.task.stage import StreamingStage, streaming_stage
from tests.spark.programs import Reading, build, read_back, reading, sensor_of

COUNT, PER_BATCH = 30, 15


def unreadable_from_the_second_batch_on(index: int) -> Reading:
    if index >= PER_BATCH:
        raise OSError("not readable yet")
    return reading(index)


def by_place(record: Reading) -> str:
    return record.place


@pytest.fixture(scope="module")
def after_one_batch(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job that failed in its second micro-batch."""
    folder = tmp_path_factory.mktemp("job")
    with pytest.raises(UserFunctionError, match="not readable yet"):
        run(spark, folder, generator=unreadable_from_the_second_batch_on)
    return folder


@pytest.fixture
def folder(after_one_batch: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(after_one_batch, tmp_path / "job"))


def run(spark: SparkSession, folder: Path, **changes: Any) -> None:
    env = ExecutionEnvironment.get_instance(spark=spark)
    build(env, f"{folder}/out", COUNT, PER_BATCH, **changes)
    env.execute("refused", checkpoint_location=f"{folder}/checkpoint")


def assert_refused(spark: SparkSession, folder: Path, **changes: Any) -> str:
    """Check that nothing in the folder changed, and return the message."""
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    with pytest.raises(IncompatibleCheckpointError) as refused:
        run(spark, folder, **changes)
    assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before
    return str(refused.value)


def test_changed_program_is_refused_before_any_batch(spark: SparkSession, folder: Path) -> None:
    text = assert_refused(spark, folder, key=by_place)
    first, difference, sample, advice = text.splitlines()
    assert first == f"This program cannot continue from the checkpoint {folder}/checkpoint:"
    assert difference.startswith("  - operator 'total' (defined at ")
    assert "): the key selector of input 0 has changed; if all keys" in difference
    assert "): the key selector of input 0 returns another key than before: for Reading(sensor='sensor-" in sample
    assert advice.startswith(
        "Undo the changes that a savepoint does not carry, or start from a new checkpoint_location"
    )
    assert "the checkpoint holds the field 'seen' of its function" in assert_refused(spark, folder, tag=RenamedTag)
    (record,) = (folder / "checkpoint/dsv2/job").glob("[!._]*")
    whole = record.read_bytes()
    record.write_bytes(whole[:-9] + b"000000000")
    with pytest.raises(CorruptDataError, match=f"{record} is damaged"):
        run(spark, folder)
    record.write_bytes(whole)
    # The original program continues.
    run(spark, folder, key=sensor_of)
    assert {row[0] for row in read_back(folder / "out")} == {0, 1}


def test_unchanged_restart_needs_few_file_operations(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a request on an object store."""
    found = Counter[tuple[str, str]]()

    def counted(name: str, operation: Any) -> Any:
        def call(self: LocalFolder, of: str = "") -> Any:
            if (place := self.place(of)).startswith(f"{folder}/checkpoint"):
                found[name, place.removeprefix(f"{folder}/checkpoint")] += 1
            return operation(self, of)

        return call

    class StartedError(Exception):
        """The query starts."""

    def start(self: SparkRuntime, *_: object) -> None:
        raise StartedError

    monkeypatch.setattr(SparkRuntime, "_start_query", start)
    for name in ("read", "sizes", "tree"):
        monkeypatch.setattr(LocalFolder, name, counted(name, getattr(LocalFolder, name)))
    with pytest.raises(StartedError):
        run(spark, folder)
    assert found.total() < 30, found
    read = {place: times for (name, place), times in found.items() if name == "read"}
    assert set(read.values()) == {1}, "each file is read once"


class RenamedTag(OneInputStreamProcessFunction[Reading, Reading]):
    """Like ``Tag`` with another field name."""

    def __init__(self) -> None:
        self.count = 0

    def process_record(self, record: Reading, output: Collector[Reading], ctx: PartitionedContext[Reading]) -> None:
        self.count += 1
        output.collect(record)


def test_checkpoint_of_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a line\n")
    lines = spark.readStream.text(str(tmp_path / "in")).writeStream.format("noop").trigger(availableNow=True)
    lines.option("checkpointLocation", f"{tmp_path}/checkpoint").start().awaitTermination()
    assert "holds a checkpoint, but not one of dsv2" in assert_refused(spark, tmp_path)


# --- Damaged state ----------------------------------------------------------------------------------------------------


def tampering_stage(packed: bytes, level: int, *, timed: bool) -> StreamingStage:
    """The unmodified stage, except that a bit in the state of its third level is flipped."""
    stage = streaming_stage(packed, level, timed=timed)

    def run_slot(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
        if level == 2 and state.exists:
            damaged = bytearray(state.get[0])
            damaged[-10] ^= 0x10
            state.update((bytes(damaged),))
        return stage(key, frames, state)

    return run_slot


def test_damaged_state_fails_the_job_and_is_never_used(
    spark: SparkSession, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_back(folder / "out")
    with monkeypatch.context() as patched:
        patched.setattr(runtime_spark.compiler, "streaming_stage", tampering_stage)
        with pytest.raises(CorruptDataError) as refused:
            run(spark, folder)
    assert str(refused.value).startswith("State of KeyedProcess (uid 'total'), subtask ")
    assert "the bytes are damaged" in str(refused.value)
    assert read_back(folder / "out") == before
