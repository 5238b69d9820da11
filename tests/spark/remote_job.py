"""The lives of a job whose files are all below one folder, on any file system."""

from __future__ import annotations

from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from dsv2 import ErrorPolicy, ExecutionEnvironment
from dsv2.dead_letters import DeadLetters
from dsv2.savepoint import Savepoint
from dsv2.sinks import FileSink
from dsv2.testing import Stop, TestSource
from runtime_spark import SparkRuntime, create_savepoint
from runtime_spark.platform.folders import open_folder
from tests.folder_contract import check_folder
from tests.spark.dead_letter_job import KEYS, Number, Numbered, fails, key_of

PER_LIFE = 24
ITEMS = [item for life in range(4) for item in (*range(life * PER_LIFE, (life + 1) * PER_LIFE), Stop())][:-1]


def _run(spark: SparkSession, root: str, checkpoint: str, parallelism: int, layout: Any, **options: Any) -> None:
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, state_layout=layout))
    numbers = env.from_source(TestSource[int](ITEMS, records_per_batch=PER_LIFE // 2)).with_uid("numbers")
    numbered = numbers.key_by(key_of).process(Number(1)).with_uid("number").with_parallelism(parallelism)
    numbered.with_error_policy(ErrorPolicy().dead_letter(ValueError))
    numbered.to_sink(FileSink(f"{root}/out", schema=Numbered, partition_by=["key"])).with_uid("out")
    env.execute("numbering", checkpoint_location=f"{root}/{checkpoint}", **options)


class Lives(NamedTuple):
    """The files that the lives of a job have left.

    Attributes:
        written: The output, as a reader of Parquet finds it.
        letters: The records of dead letters of the first checkpoint.
        progress: The number of files of its progress log.
        drivers: The files of its lease.
        savepoint: The operators with state in the savepoint.
        new_files: The files whose names end as those do that are to be renamed.
    """

    written: list[list[int]]
    letters: list[str]
    progress: int
    drivers: list[str]
    savepoint: list[str]
    new_files: list[str]


def lives_of_a_job(spark: SparkSession, root: str) -> Lives:
    """Run a job in ``root``: begin, restart, migrate to another parallelism and layout, and go on from a savepoint."""
    check_folder(open_folder(spark, f"{root}/contract"))
    _run(spark, root, "checkpoint", 2, "blob")
    _run(spark, root, "checkpoint", 2, "blob")
    _run(spark, root, "checkpoint", 3, "map")
    create_savepoint(f"{root}/checkpoint", f"{root}/savepoint", spark=spark)
    _run(spark, root, "next", 2, "blob", savepoint=f"{root}/savepoint")
    folder = open_folder(spark, root)
    rows = spark.read.parquet(f"{root}/out").collect()
    savepoint = Savepoint.open(f"{root}/savepoint", spark=spark)
    return Lives(
        sorted([row.record, row.nth] for row in rows),
        sorted(letter.error_message for letter in DeadLetters.open(f"{root}/checkpoint", spark=spark).letters),
        sum("progress" in name for name in folder.tree("checkpoint")),
        sorted(name.rpartition(".")[2] for name in folder.sizes("checkpoint/dsv2/drivers")),
        sorted(savepoint.operators),
        [name for name in folder.tree("") if name.endswith(".new")],
    )


def check(lives: Lives) -> None:
    """Check that each record was processed once."""
    good = [record for record in range(4 * PER_LIFE) if not fails(record)]
    nth = [sum(before % KEYS == record % KEYS for before in good if before <= record) for record in good]
    assert lives.written == [list(pair) for pair in zip(good, nth, strict=True)]
    bad = [record for record in range(3 * PER_LIFE) if fails(record)]
    assert len(lives.letters) == len(bad)
    assert lives.progress > 0
    assert lives.drivers == ["json"]  # the claim of the last driver, without a heartbeat
    assert "number" in lives.savepoint
    assert lives.new_files == []
