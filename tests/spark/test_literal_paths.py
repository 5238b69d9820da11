"""Checkpoints and outputs whose paths look like patterns, and those on other file systems."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment
from dsv2.base.folders import LocalFolder
from dsv2.errors import IncompatibleCheckpointError
from dsv2.sinks import FileSink
from runtime_spark import SparkRuntime, StateLayout
from runtime_spark.platform.folders import open_folder
from tests.folder_contract import check_folder
from tests.profiles import nightly


class Number(NamedTuple):
    n: int
    parity: int


def count_on(record: int, output: Any, ctx: Any) -> None:
    output.collect(Number(record, record % 2))


def run(
    spark: SparkSession,
    folder: str,
    *,
    count: int = 4,
    layout: StateLayout = StateLayout.BLOB,
    by: int = 2,
    on_change: Literal["migrate", "refuse"] = "migrate",
) -> None:
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=layout))
    numbers = env.from_collection(range(count), "numbers", records_per_batch=2).with_uid("numbers")
    counted = numbers.key_by(lambda n: n % by).process(count_on).with_uid("count")
    counted.to_sink(FileSink(f"{folder}/out", schema=Number, roll_bytes=10**9)).with_uid("out")
    env.execute("literal", checkpoint_location=f"{folder}/checkpoint", on_change=on_change)


@pytest.mark.parametrize("layout", [StateLayout.MAP, *nightly(StateLayout.BLOB)])
def test_folder_that_looks_like_a_pattern(spark: SparkSession, tmp_path: Path, layout: StateLayout) -> None:
    folder = tmp_path / "ck [1] {a,b} run* 100%25"
    run(spark, str(folder), layout=layout)
    assert sorted(path.name for path in (folder / "checkpoint").iterdir() if path.name[0] != ".") == [
        "commits", "dsv2", "metadata", "offsets", "state",
    ]  # fmt: skip
    assert ds.dataset(folder / "out", format="parquet", partitioning="hive").count_rows() == 4
    with pytest.raises(IncompatibleCheckpointError, match="the key selector of input 0 has changed"):
        run(spark, str(folder), layout=layout, by=3, on_change="refuse")
    run(spark, str(folder), layout=layout, by=3)
    assert (folder / "checkpoint" / "generations" / "1" / "commits" / "0").exists()
    assert ds.dataset(folder / "out", format="parquet", partitioning="hive").count_rows() == 4


@pytest.fixture
def mounted(spark: SparkSession, tmp_path: Path) -> Iterator[str]:
    """``tmp_path`` through a Hadoop file system that is not the local one."""
    authority = tmp_path.name.replace("_", "-")  # Hadoop caches a file system for each
    key = f"fs.viewfs.mounttable.{authority}.link./job"
    spark.conf.set(key, tmp_path.as_uri())
    yield f"viewfs://{authority}/job"
    spark.conf.unset(key)


def test_other_file_systems_behave_like_the_local_one(spark: SparkSession, mounted: str, tmp_path: Path) -> None:
    there = open_folder(spark, f"{mounted}/a [1]*")
    assert type(there) is not LocalFolder
    check_folder(there, writers=1)  # behind Hadoop's view is a local disk, whose files are replaced when one is renamed
    there.write("x/1", b"one")
    here = open_folder(spark, f"{tmp_path}/a [1]*")
    assert (type(here), here.read("x/1")) == (LocalFolder, b"one")


def test_job_on_another_file_system(spark: SparkSession, mounted: str, tmp_path: Path) -> None:
    run(spark, mounted)
    assert ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").count_rows() == 4
    with pytest.raises(IncompatibleCheckpointError):
        run(spark, mounted, by=3, on_change="refuse")
    for _ in range(2):
        run(spark, mounted, layout=StateLayout.MAP)
    assert ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").count_rows() == 4
    names = {path.name for path in (tmp_path / "checkpoint").iterdir() if path.name[0] != "."}
    assert names == {"dsv2", "generations"}, "the checkpoint was migrated"
