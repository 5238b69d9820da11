"""``dsv2 watermarks``: from the progress that a job has left in its checkpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from dsv2 import CollectSink, ExecutionEnvironment, Trigger
from dsv2.cli import main
from tests.support import one_input
from tests.unit.jobs.test_stuck_watermarks import Numbers, W, emits, strategy


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a job that waits for records of the split b."""
    env = ExecutionEnvironment.get_instance(runtime="local")
    env.set_parallelism(2)
    numbers = Numbers({"a": 9, "b": 3}, 99, bounded=False)
    first = env.from_source(numbers, watermarks=strategy()).with_uid("in").process(emits(W)).with_uid("first")
    first.shuffle().process(one_input()).with_uid("f").to_sink(CollectSink()).with_uid("out")
    env.execute("stuck", checkpoint_location=tmp_path, trigger=Trigger.available_now())
    return tmp_path


def printed(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    found = main(["watermarks", *(str(argument) for argument in arguments)])
    captured = capsys.readouterr()
    assert found == code, captured.err
    return captured.out if code == 0 else captured.err


def test_sentences(capsys: pytest.CaptureFixture[str], checkpoint: Path) -> None:
    head, _, *sentences = printed(capsys, checkpoint).splitlines()
    assert re.fullmatch(r"Job 'stuck' after micro-batch 0, \d+ m?s ago", head)
    assert [sentence.partition(" is ")[0] for sentence in sentences] == [
        "Event time of 'first', subtask 1,",
        "Event time of 'f', subtask 0,",
    ]


def test_details_of_one_operator(capsys: pytest.CaptureFixture[str], checkpoint: Path) -> None:
    lines = printed(capsys, checkpoint, "event-time", "--operator", "f").splitlines()
    assert lines[-1] == "The way to the cause: f[0] <- first[1] <- in[1] <- split b"
    rows = [line.split() for line in lines if re.match(r" +1  first", line)]
    assert [(row[2], row[3], row[-1]) for row in rows] == [
        ("0", "2023-11-14T22:13:27.999Z", "active"),
        ("1", "2023-11-14T22:13:21.999Z", "yes"),
    ]


def test_json(capsys: pytest.CaptureFixture[str], checkpoint: Path) -> None:
    report = json.loads(printed(capsys, checkpoint, "w", "--operator", "f", "--json"))
    (operator,) = report["operators"]
    assert (report["identifier"], operator["uid"], operator["value"]) == ("w", "f", 2)
    assert [channel["value"] for channel in operator["inputs"][0]["channels"]] == [8, 2]


def test_a_folder_without_progress(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "has no progress of a job" in printed(capsys, tmp_path, code=2)


def test_an_unknown_watermark(capsys: pytest.CaptureFixture[str], checkpoint: Path) -> None:
    assert "The job declares no watermark 'v'" in printed(capsys, checkpoint, "v", code=2)
