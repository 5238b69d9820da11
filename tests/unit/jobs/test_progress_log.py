"""The files of progress in a checkpoint: what is stored comes back, there are never many, and nothing fails the job."""

from __future__ import annotations

import json
from math import inf, nan
from pathlib import Path

import pytest

from dsv2.base.folders import LocalFolder
from dsv2.errors import CorruptDataError, IncompatibleCheckpointError
from dsv2.jobs import (
    BatchProgress,
    ChannelProgress,
    InputProgress,
    JobProgress,
    OperatorProgress,
    SplitProgress,
    SubtaskProgress,
    progress_log,
)
from dsv2.jobs.progress_log import ProgressLog, StoredJob, read_job, read_progress
from dsv2.sinks import CollectSink
from dsv2.views.explain import explain
from tests.support import local_environment

CHANNEL = ChannelProgress(1, 5, {"w": 7, "flag": True}, True, True, 9)
SUBTASK = SubtaskProgress(
    subtask=3,
    records_in=2**62,
    records_out=3,
    outputs=(1, 2),
    user_time_ms=1.5,
    event_time=-5,
    watermarks={"w": 7, "flag": False},
    inputs=(InputProgress(0, "source", 2, channels=(CHANNEL,)),),
)
OPERATOR = OperatorProgress(
    "a", "Ä", watermarks={"w": (None, 3)}, counters={"c": 1}, gauges={"g": 0.5}, subtasks=(SUBTASK,), splits=()
)
SOURCE = OperatorProgress("s", "S", splits=(SplitProgress("topic-3", 1, '{"offset": 4}', lag=None, moved_at_ms=8),))


def batch(number: int) -> BatchProgress:
    return BatchProgress(number, 1_000 * number, 2.5, {"planning": 1.0, "commit": 0.25}, 4, 5)


def progress(number: int) -> JobProgress:
    return JobProgress(number, {"a": OPERATOR, "s": SOURCE}, tuple(map(batch, range(number + 1))))


def folder_of(path: Path) -> LocalFolder:
    return LocalFolder(str(path))


def test_progress_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = ProgressLog(folder_of(tmp_path), 0)
    assert log.before is None
    for number in range(3):
        log.add(progress(number))
    assert read_progress(tmp_path) == read_progress(folder_of(tmp_path)) == list(map(progress, range(3)))
    assert read_progress(tmp_path, after=1) == [progress(2)]


def test_checkpoint_without_progress(tmp_path: Path) -> None:
    assert read_progress(tmp_path / "none") == []
    assert read_job(tmp_path / "none") is None


def test_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = ProgressLog(folder_of(tmp_path), 0)
    env = local_environment()
    env.from_collection([1]).to_sink(CollectSink[int]())
    plan = env.build_plan("sums")
    for started in (1, 2):
        log.add_job(plan, started)
    log.add(progress(0))
    shown = json.loads(explain(plan).render("json"))
    assert read_job(tmp_path) == StoredJob("sums", 2, shown)
    assert len(read_progress(tmp_path)) == 1, "the plan is not progress"


def test_a_run_continues_with_the_progress_before_it(tmp_path: Path) -> None:
    first = ProgressLog(folder_of(tmp_path), 0)
    for number in range(4):
        first.add(progress(number))
    second = ProgressLog(folder_of(tmp_path), 3)
    assert second.before is not None
    assert second.before.batch_id == 2, "micro-batch 3 is repeated"
    assert [one.batch_id for one in read_progress(tmp_path)] == [0, 1, 2]


def test_there_are_at_most_a_hundred_files(tmp_path: Path) -> None:
    log = ProgressLog(folder_of(tmp_path), 0)
    for number in range(130):
        log.add(JobProgress(number, {}))
    ProgressLog(folder_of(tmp_path), 130).add(JobProgress(130, {}))
    assert [one.batch_id for one in read_progress(tmp_path)] == list(range(31, 131))


def test_large_progress_leaves_fewer_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ProgressLog(folder_of(tmp_path), 0)
    for number in range(6):
        log.add(progress(number))
    sizes = {int(file.stem): file.stat().st_size for file in (tmp_path / "dsv2/progress").iterdir()}
    log.add(progress(6))
    newest = (tmp_path / "dsv2/progress/6.json").stat().st_size
    monkeypatch.setattr(progress_log, "_MOST_BYTES", newest + sizes[5] + sizes[4])
    log.add(progress(6))
    assert [one.batch_id for one in read_progress(tmp_path)] == [4, 5, 6]
    monkeypatch.setattr(progress_log, "_MOST_BYTES", 1)
    log.add(progress(7))
    assert [one.batch_id for one in read_progress(tmp_path)] == [7], "the last one is always there"


def test_values_that_json_does_not_have(tmp_path: Path) -> None:
    operator = OperatorProgress("a", "A", gauges={"nan": nan, "inf": inf, "one": 1})
    ProgressLog(folder_of(tmp_path), 0).add(JobProgress(0, {"a": operator}))
    (found,) = read_progress(tmp_path)
    assert found.operators["a"].gauges == {"one": 1}


def test_folder_that_cannot_be_written_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "dsv2").write_text("in the way")
    log = ProgressLog(folder_of(tmp_path), 0)
    for number in range(3):
        log.add(progress(number))
    (message,) = caplog.messages
    assert "The job continues." in message


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version": 1}', b'{"version": 1, "dsv2": "", "progress": 3}'])
def test_damaged_file(tmp_path: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "dsv2/progress/0.json"
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    with pytest.raises(CorruptDataError, match=r"0\.json is damaged"):
        read_progress(tmp_path)
    log = ProgressLog(folder_of(tmp_path), 1)
    assert log.before is None
    assert "cannot be read" in caplog.text
    log.add(progress(1))
    assert file.with_name("1.json").exists()


def test_file_of_a_later_version(tmp_path: Path) -> None:
    file = tmp_path / "dsv2/progress/0.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"version": 2, "dsv2": "9.9", "progress": "something else"}))
    with pytest.raises(IncompatibleCheckpointError, match=r"version 2, .* the version that wrote it \(9.9\)"):
        read_progress(tmp_path)
