"""Commands that read checkpoints, on one job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dsv2 import ExecutionEnvironment, Trigger
from dsv2.cli import main
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink
from dsv2.testing import Stop, TestSource
from tests.unit.test_command_line import Counting

pytestmark = [pytest.mark.spark]


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


def test_folder_without_a_checkpoint(capsys: pytest.CaptureFixture[str], spark: SparkSession, tmp_path: Path) -> None:
    assert main(["checkpoint", "show", str(tmp_path)]) == 2
    assert "is not a checkpoint with a complete micro-batch" in capsys.readouterr().err
    assert main(["checkpoint", "verify", str(tmp_path), "--conf", "spark.master"]) == 2
    assert "--conf spark.master: write it as NAME=VALUE." in capsys.readouterr().err
