"""``dsv2 files``: what it prints, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsv2.cli import main
from tests.unit.connectors.files.test_written_files import Sink, field, numbers, read


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    """Three micro-batches; the run has not ended."""
    sink = Sink(tmp_path, "parquet", [field("n", "long")])
    for number in range(3):
        sink.write(numbers(number))
    return sink


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    found = main(["files", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    assert found == code, captured.err
    return captured.out if code == 0 else captured.err


def test_files_are_shown(capsys: pytest.CaptureFixture[str], sink: Sink, tmp_path: Path) -> None:
    lines = printed(capsys, "show", tmp_path).splitlines()
    assert lines[0].startswith("3 parquet files, ")
    assert lines[0].endswith(" bytes, up to micro-batch 2")
    assert "The last run is running or has failed." in lines
    sink.log.compact(10**6, sink.merge)
    sink.log.close()
    shown = json.loads(printed(capsys, "show", tmp_path, "--json"))
    assert [(file["first"], file["last"]) for file in shown["files"]] == [(0, 2)]
    assert shown["ended_normally"] is True


def test_running_job_is_not_compacted(capsys: pytest.CaptureFixture[str], sink: Sink, tmp_path: Path) -> None:
    said = printed(capsys, "compact", tmp_path, code=2)
    assert "is running, or has failed. Stop it with handle.stop(). If it is not running, add --job-has-ended." in said


def test_last_micro_batches_are_removed(capsys: pytest.CaptureFixture[str], sink: Sink, tmp_path: Path) -> None:
    said = printed(capsys, "truncate", tmp_path, "--after", "0")
    assert said == "2 files were deleted. The output ends with micro-batch 0.\n"
    assert read(tmp_path) == [0]
    assert len([*tmp_path.glob("0*.parquet")]) == 1


def test_what_attempts_have_left_is_deleted(capsys: pytest.CaptureFixture[str], sink: Sink, tmp_path: Path) -> None:
    for attempt in ("3-1000-run-1", "3-2000-run-2"):
        sink.folder.write(f"_dsv2/data/{attempt}/part-0.parquet", b"left")
    listed = json.loads(printed(capsys, "clean", tmp_path, "--older-than", "1s", "--dry-run", "--json"))["files"]
    # The newest attempt may still be writing.
    assert [file["file"] for file in listed] == ["_dsv2/data/3-1000-run-1/part-0.parquet"]
    assert printed(capsys, "clean", tmp_path).splitlines()[0] == "1 files were deleted, 4 bytes."
    assert [file.name for file in (tmp_path / "_dsv2/data").iterdir()] == ["3-2000-run-2"]
    assert read(tmp_path) == [0, 1, 2]
    sink.log.close()
    sink.folder.write("_dsv2/data/3-2000-run-2/part-0.parquet", b"late")  # by a task of the run that has ended
    assert printed(capsys, "clean", tmp_path).splitlines()[0] == "1 files were deleted, 4 bytes."


@pytest.mark.parametrize("command", ["show", "compact", "clean"])
def test_other_folders_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str) -> None:
    assert printed(capsys, command, tmp_path, code=2) == f"dsv2: {tmp_path} is not the folder of a FileSink.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["clean", "x", "--older-than", "1w"], "'1w' is not a duration, such as 30m, 12h or 7d"),
        (["compact", "x", "--target-size", "0m"], "'0m' is not a size in bytes, such as 128m"),
        (["truncate", "x"], "the following arguments are required: --after"),
    ],
)
def test_arguments_are_checked(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    with pytest.raises(SystemExit):
        main(["files", *arguments])
    assert said in capsys.readouterr().err
