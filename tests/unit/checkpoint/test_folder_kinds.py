"""A savepoint that is given as a checkpoint, and the other way round; commands for checkpoints of local jobs."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from dsv2 import JobError, Trigger
from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.folder_kinds import FolderKind, check_no_savepoint, kind_of_folder
from dsv2.cli import main
from dsv2.errors import ConfigurationError, CorruptDataError
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.savepoint import Savepoint
from dsv2.sinks import CollectSink, ForeachBatchSink, Sink
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.testing import Stop, TestSource
from tests.support import local_environment

COUNT = StateDeclarations.value_state("count", int, default=0)


class Counting(OneInputStreamProcessFunction[int, tuple[int, int]]):
    def uses_states(self) -> list[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        count = ctx.state_manager.get_state(COUNT)
        count.update(count.value() + 1)
        output.collect((record, count.value()))


def by_two(number: int) -> int:
    return number % 2


ITEMS = (1, 2, 3, Stop(), 4, 5)


def start(sink: Sink[Any] | None = None, items: Any = ITEMS, **options: Any) -> Any:
    sink = CollectSink[Any]() if sink is None else sink
    env = local_environment()
    counts = env.from_source(TestSource[int](items)).with_uid("in").key_by(by_two).process(Counting())
    counts.with_uid("count").with_parallelism(2).to_sink(sink).with_uid("out")
    job = env.execute_async("counting", trigger=Trigger.available_now(), **options)
    job.await_termination()
    return job


def files(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    start(checkpoint_location=tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def test_savepoint_given_as_checkpoint_is_not_touched(tmp_path: Path) -> None:
    path = Path(start().savepoint(tmp_path / "savepoint"))
    before = files(path)
    with pytest.raises(ConfigurationError, match=r"is a savepoint, not a checkpoint\. .* as savepoint=\.\.\., with"):
        start(checkpoint_location=path)
    assert files(path) == before
    assert not (path / "local").exists()
    start(savepoint=path, checkpoint_location=tmp_path / "new")


def test_spark_refuses_a_savepoint_as_well(tmp_path: Path) -> None:
    """Before its files are read."""
    for kind, name in ((FolderKind.SAVEPOINT, "savepoint.json"), (FolderKind.SPARK, "offsets/0")):
        folder = LocalFolder(str(tmp_path / kind.name))
        folder.write(name, b"")
        assert kind_of_folder(folder) is kind
    check_no_savepoint(folder.path, kind_of_folder(folder))
    with pytest.raises(ConfigurationError, match="is a savepoint"):
        check_no_savepoint("/a", FolderKind.SAVEPOINT)


def test_checkpoint_given_as_savepoint_is_not_to_be_deleted(checkpoint: Path, tmp_path: Path) -> None:
    said = rf"{checkpoint} is the checkpoint of a job in the local runtime, not a savepoint.*checkpoint_location"
    with pytest.raises(ConfigurationError, match=said) as refused:
        start(savepoint=checkpoint, checkpoint_location=tmp_path / "new")
    assert "delete" not in str(refused.value)
    assert f"dsv2 savepoint create {checkpoint} PATH" in str(refused.value)
    with pytest.raises(ConfigurationError, match=said):
        Savepoint.open(checkpoint)
    spark = tmp_path / "spark"
    LocalFolder(str(spark)).write("offsets/0", b"")
    with pytest.raises(ConfigurationError, match="is the checkpoint of a job on Spark, not a savepoint"):
        Savepoint.open(spark)


def test_folder_that_is_no_savepoint_is_not_to_be_deleted(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(ConfigurationError, match=r"has no savepoint.json.*take it again, in another folder") as refused:
        Savepoint.open(tmp_path)
    assert "delete" not in str(refused.value)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        assert not name.startswith(("pyspark", "runtime_spark")), name
        return imported(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr("dsv2.cli.command.spark_commands", lambda: pytest.fail("Spark is used"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str]:
    code = main(list(map(str, arguments)))
    captured = capsys.readouterr()
    return code, captured.out + captured.err


@pytest.mark.usefixtures("without_spark")
def test_checkpoint_of_a_local_job_is_shown_and_verified(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, shown = run(capsys, "checkpoint", "show", checkpoint)
    assert code == 0
    assert "of the job 'counting' after micro-batch 0," in shown
    assert "local runtime, written by Python" in shown
    data = json.loads(run(capsys, "checkpoint", "show", checkpoint, "--json")[1])
    assert [(one["operator"], one["parallelism"]) for one in data["operators"]] == [("count", 2), ("in", 1)]
    assert data["positions"].keys() == {"in"}
    data = json.loads(run(capsys, "checkpoint", "verify", checkpoint, "--json")[1])
    assert data["batch_id"] == 0
    assert {one["operator"] for one in data["operators"]} == {"count"}
    assert all(one["rows"] > 0 and one["bytes"] > 0 for one in data["operators"])


@pytest.mark.usefixtures("without_spark")
def test_job_continues_from_a_savepoint_of_its_local_checkpoint(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(capsys, "savepoint", "create", checkpoint, tmp_path / "savepoint")
    assert (code, f"The savepoint is in {tmp_path / 'savepoint'}." in said) == (0, True)
    sink = CollectSink[Any]()
    start(sink, savepoint=tmp_path / "savepoint", checkpoint_location=tmp_path / "new")
    assert sorted(sink.results) == [(4, 2), (5, 3)]
    taken, of_job = Savepoint.open(tmp_path / "savepoint"), start().savepoint(tmp_path / "of the job")
    tables = [one.state("count", "count").to_arrow().to_pylist() for one in (taken, Savepoint.open(of_job))]
    assert tables[0] == tables[1] != []
    assert taken.origin.batch_id == 0


@pytest.mark.usefixtures("without_spark")
def test_what_the_commands_refuse(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    savepoint = start().savepoint(tmp_path / "savepoint")
    for command in (["checkpoint", "show", savepoint], ["savepoint", "create", savepoint, tmp_path / "new"]):
        code, text = run(capsys, *command)
        assert code != 0
        assert "is a savepoint, not a checkpoint" in text
    code, text = run(capsys, "savepoint", "create", checkpoint, checkpoint)
    assert (code != 0, "is not empty" in text) == (True, True)
    start(items=[1, 2], checkpoint_location=tmp_path / "complete")
    code, text = run(capsys, "savepoint", "create", tmp_path / "complete", tmp_path / "new")
    assert (code != 0, "has reached the end of its input" in text) == (True, True)


def test_sinks_must_have_the_last_micro_batch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(records: list[Any], batch_id: int) -> None:
        raise OSError("the disk is full")

    with pytest.raises(JobError, match="the disk is full"):
        start(ForeachBatchSink(fails), checkpoint_location=tmp_path / "checkpoint")
    code, text = run(capsys, "savepoint", "create", tmp_path / "checkpoint", tmp_path / "savepoint")
    assert code != 0
    assert "may not have micro-batch 0" in text
    assert not (tmp_path / "savepoint").exists()


def test_changed_byte_in_the_state_names_the_file(checkpoint: Path) -> None:
    (file,) = (checkpoint / "local").glob("*.log")
    data = file.read_bytes()
    for place in (-40, len(data) // 2, 50):
        changed = bytearray(data)
        changed[place] ^= 1
        file.write_bytes(changed)
        with pytest.raises(CorruptDataError, match=rf"{file} is damaged at byte .* Restore"):
            start(checkpoint_location=checkpoint)
