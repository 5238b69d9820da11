"""Commands that read checkpoints, on one job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, Trigger
from dsv2.cli import main
from dsv2.connectors.files import read_files
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink, FileSink
from dsv2.testing import Stop, TestSource
from runtime_spark import SparkRuntime
from tests.unit.cli.test_command_line import Counting
from tests.unit.connectors.files.test_written_files import Sink, field, numbers

pytestmark = [pytest.mark.spark]


class Number(NamedTuple):
    id: int


class Text(NamedTuple):
    text: str


class Texts(OneInputStreamProcessFunction[Number, Text]):
    def process_record(self, record: Number, output: Any, ctx: Any) -> None:
        output.collect(Text(str(record.id)))


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a job that has read three words."""
    folder = tmp_path_factory.mktemp("job") / "checkpoint"
    env = ExecutionEnvironment.get_instance(spark=spark)
    words: Any = env.from_source(TestSource(["a", "b", "a", Stop(), "c"]), "words").with_uid("words")
    words.key_by(len).process(Counting()).with_uid("counts").to_sink(CollectSink()).with_uid("out")
    env.execute("word count", checkpoint_location=folder, trigger=Trigger.available_now())
    return folder


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    code = main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def test_checkpoint_is_shown_and_verified(capsys: pytest.CaptureFixture[str], checkpoint: Path) -> None:
    shown = printed(capsys, "checkpoint", "show", checkpoint)
    assert "of the job 'word count' after micro-batch 0,\n1 partitions, state layout blob, written by Python" in shown
    assert shown.splitlines()[-1] == 'words   {"position": 3}'
    assert json.loads(printed(capsys, "checkpoint", "show", checkpoint, "--json"))["positions"] == {
        "words": {"position": 3}
    }
    (counts,) = json.loads(printed(capsys, "checkpoint", "verify", checkpoint, "--json"))["operators"]
    assert counts["operator"] == "counts"
    assert counts["rows"] > 5


def test_savepoint_is_created(capsys: pytest.CaptureFixture[str], checkpoint: Path, tmp_path: Path) -> None:
    path = json.loads(printed(capsys, "savepoint", "create", checkpoint, tmp_path / "savepoint", "--json"))["path"]
    assert Savepoint.open(path).state("counts", "count").to_arrow()["value"].to_pylist() == [3]


def test_files_are_compacted(capsys: pytest.CaptureFixture[str], spark: SparkSession, tmp_path: Path) -> None:
    sink = Sink(tmp_path, "parquet", [field("n", "long"), field("part", "string")], ["part"])
    for number in range(4):
        files = {"part=a%2Fb/part-0.parquet": numbers(number, number + 10), "part=c/part-0.parquet": numbers(number)}
        sink.write({path: data for path, table in files.items() for data in table.values()})
    before = [read_files(tmp_path, after=after).to_arrow() for after in range(-1, 4)]
    assert main(["files", "compact", str(tmp_path)]) == 2
    assert "add --job-has-ended" in capsys.readouterr().err
    said = printed(capsys, "files", "compact", tmp_path, "--job-has-ended")
    assert said == "8 files were merged: 2 files instead of 8.\n"
    assert [read_files(tmp_path, after=after).to_arrow() for after in range(-1, 4)] == before
    assert printed(capsys, "files", "compact", tmp_path) == "0 files were merged: 2 files instead of 2.\n"


def test_folder_without_a_checkpoint(capsys: pytest.CaptureFixture[str], spark: SparkSession, tmp_path: Path) -> None:
    assert main(["checkpoint", "show", str(tmp_path)]) == 2
    assert "is not a checkpoint with a complete micro-batch" in capsys.readouterr().err
    assert main(["checkpoint", "verify", str(tmp_path), "--conf", "spark.master"]) == 2
    assert "--conf spark.master: write it as NAME=VALUE." in capsys.readouterr().err


def pipeline(env: ExecutionEnvironment, spark: SparkSession, folder: Path, count: int = 5) -> None:
    """Write the numbers of a DataFrame as text."""
    numbers = env.from_dataframe(spark.range(count), Number).with_uid("numbers")
    texts = numbers.key_by(lambda number: number.id % 2).process(Texts()).with_uid("texts").with_parallelism(2)
    texts.to_sink(FileSink(folder, schema=Text)).with_uid("files")


def test_pipeline_is_checked_and_run_with_a_session(
    capsys: pytest.CaptureFixture[str], spark: SparkSession, tmp_path: Path
) -> None:
    target = f"{__name__}:pipeline"
    options = ["--set", f"folder={tmp_path / 'out'}"]
    assert printed(capsys, "check", target, *options, "--no-types", "--strict") == f"{target}: no errors\n"
    assert "Runtime: Spark\n  tasks per level: 2\n" in printed(capsys, "explain", target, *options)
    first = printed(capsys, "run", target, *options, "--checkpoint", tmp_path / "job")
    assert first.startswith("The job 'pipeline' has finished.\n")
    assert ["texts", "5", "5"] in [line.split() for line in first.splitlines()]
    printed(capsys, "run", target, *options, "--checkpoint", tmp_path / "job")  # a restart finds nothing new
    assert sorted(row.text for row in spark.read.parquet(str(tmp_path / "out")).collect()) == list("01234")


def test_runtime_of_an_environment_is_explained(spark: SparkSession) -> None:
    env = ExecutionEnvironment.get_instance(SparkRuntime(spark, partitions=3, state_layout="map"))
    env.from_dataframe(spark.range(3), Text).map(str).with_uid("texts").to_sink(CollectSink[str]())
    runtime = env.explain().view.runtime
    assert runtime is not None
    assert {fact.name: fact.value for fact in runtime.facts}["state layout"] == "map"
    assert "it has no column 'text'" in str(runtime.refusal)
