"""Checkpoints with state that was replaced by older state or truncated: refused by name, with nothing written."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import Dsv2Error, ExecutionEnvironment, JobError
from dsv2.errors import CorruptDataError, UserFunctionError
from runtime_spark import SparkRuntime, StateLayout
from tests.profiles import nightly
from tests.spark.programs import Reading, build, read_back, reading

COUNT, PER_BATCH, COMPLETE = 60, 15, 3
_CHANGES = (".delta", ".changelog")


def unreadable_behind_the_third_batch(index: int) -> Reading:
    if index >= COMPLETE * PER_BATCH:
        raise OSError("not readable yet")
    return reading(index)


def run(spark: SparkSession, folder: Path, layout: StateLayout, *, whole: bool) -> None:
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=layout))
    generator = reading if whole else unreadable_behind_the_third_batch
    build(env, f"{folder}/out", COUNT, PER_BATCH, generator=generator)
    env.execute("older", checkpoint_location=f"{folder}/checkpoint")


def begin(spark: SparkSession, folder: Path, layout: StateLayout) -> Path:
    """Complete three micro-batches and start a fourth one, stored by a file system without checksums, and move it."""
    original = folder / "original"
    with pytest.raises(UserFunctionError, match="not readable yet"):
        run(spark, original, layout, whole=False)
    for checksum in (original / "checkpoint").rglob(".*.crc"):
        checksum.unlink()
    return original.rename(folder / "moved")


@pytest.fixture(scope="module", params=[StateLayout.MAP, *nightly(StateLayout.BLOB)])
def begun(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, StateLayout]:
    """The folder of a job that has begun, and its layout."""
    return begin(spark, tmp_path_factory.mktemp("begun"), request.param), request.param


@pytest.fixture(scope="module")
def another(spark: SparkSession, begun: tuple[Path, StateLayout], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of another job of the same program, which has begun as well."""
    return begin(spark, tmp_path_factory.mktemp("another"), begun[1]) / "checkpoint"


@pytest.fixture(scope="module")
def complete(
    spark: SparkSession, begun: tuple[Path, StateLayout], tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Any, ...]]:
    """The output of the job after it has continued to its end."""
    folder, layout = begun
    finished = Path(shutil.copytree(folder, tmp_path_factory.mktemp("complete") / "job"))
    run(spark, finished, layout, whole=True)
    return read_back(finished / "out")


@pytest.fixture
def job(begun: tuple[Path, StateLayout], tmp_path: Path) -> tuple[Path, StateLayout]:
    """A copy of it."""
    folder, layout = begun
    return Path(shutil.copytree(folder, tmp_path / "job")), layout


def replace_by_the_version_before(folder: Path, version: int) -> None:
    """Restore the changes of the micro-batch before ``version`` in all partitions of the last level."""
    changes = [file for file in (folder / "checkpoint/state/2").rglob(f"{version}.*") if file.suffix in _CHANGES]
    assert changes
    for file in changes:
        shutil.copy(file.with_name(f"{version - 1}{file.suffix}"), file)
    delete_snapshots(folder)


def delete_snapshots(folder: Path) -> None:
    """Delete what Spark writes occasionally, with all earlier changes, so that it reads these."""
    for snapshot in (folder / "checkpoint/state/2").rglob("*.*"):
        if snapshot.suffix in (".zip", ".snapshot"):
            snapshot.unlink()


def assert_refused(spark: SparkSession, job: tuple[Path, StateLayout], error: type[Dsv2Error], said: str) -> None:
    folder, layout = job
    before = read_back(folder / "out")
    with pytest.raises(error, match=said):
        run(spark, folder, layout, whole=True)
    assert read_back(folder / "out") == before


def test_state_of_the_previous_batch_is_refused(spark: SparkSession, job: tuple[Path, StateLayout]) -> None:
    replace_by_the_version_before(job[0], COMPLETE)
    written = f"was last written in micro-batch {COMPLETE - 2}, but micro-batch {COMPLETE} of the checkpoint continues"
    assert_refused(spark, job, CorruptDataError, written)


def test_missing_changes_in_between_are_refused(spark: SparkSession, job: tuple[Path, StateLayout]) -> None:
    """With pages: the state of the subtask is right, and some of its pages are not."""
    if job[1] is not StateLayout.MAP:
        pytest.skip("A value is written whole in each micro-batch.")
    replace_by_the_version_before(job[0], COMPLETE - 1)
    assert_refused(spark, job, CorruptDataError, f"is incomplete: the entries that micro-batch {COMPLETE - 2} wrote")


def test_state_that_spark_cannot_read_names_its_subtasks(spark: SparkSession, job: tuple[Path, StateLayout]) -> None:
    (of_task_1,) = [
        file for file in (job[0] / "checkpoint/state/2/1").rglob(f"{COMPLETE}.*") if file.suffix in _CHANGES
    ]
    delete_snapshots(job[0])
    content = of_task_1.read_bytes()
    of_task_1.write_bytes(content[: len(content) // 2])
    assert_refused(spark, job, JobError, r"the state of .*, subtask 1.* cannot be read: a file in state/<level>/1 of")


def test_moved_checkpoint_continues(complete: list[tuple[Any, ...]]) -> None:
    """With a map, Spark has recorded the path of the state types."""
    assert {row[0] for row in complete} == set(range(COUNT // PER_BATCH))
    sums = [row for row in complete if row[1] == "sum"]
    assert len(sums) == COUNT


def test_lost_state_types_are_taken_from_a_new_checkpoint(
    spark: SparkSession, job: tuple[Path, StateLayout], complete: list[tuple[Any, ...]], another: Path
) -> None:
    folder, layout = job
    if layout is not StateLayout.MAP:
        pytest.skip("Spark writes them again.")
    types = [f"state/{level}/{name}" for level in range(3) for name in ("_metadata", "_stateSchema")]
    shutil.rmtree(folder / "checkpoint" / types[2])
    assert_refused(spark, job, CorruptDataError, "replace state/1/_metadata and state/1/_stateSchema with the ones")
    for name in types:
        shutil.rmtree(folder / "checkpoint" / name, ignore_errors=True)
        shutil.copytree(another / name, folder / "checkpoint" / name)
    run(spark, folder, layout, whole=True)
    assert read_back(folder / "out") == complete


def test_state_of_another_checkpoint_is_refused(
    spark: SparkSession, job: tuple[Path, StateLayout], another: Path
) -> None:
    folder, _ = job
    shutil.rmtree(folder / "checkpoint/state")
    shutil.copytree(another / "state", folder / "checkpoint/state")
    assert_refused(spark, job, CorruptDataError, "belongs to another checkpoint: its checkpoint is ")
