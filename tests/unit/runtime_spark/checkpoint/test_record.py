"""The record of a job in a generation of a checkpoint: written, read back, and damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.key_samples import KeySample
from dsv2.checkpoint.task_report import TaskReport
from dsv2.checks.json_documents import from_json, to_json
from dsv2.errors import CorruptDataError, IncompatibleCheckpointError
from runtime_spark.checkpoint.generation import Generation
from runtime_spark.checkpoint.record import SparkRecords
from runtime_spark.checkpoint.spark_logs import Beginning
from tests.unit.runtime_spark.checkpoint.test_generation import Checkpoint, plan_of, stored_record

RECORD = stored_record(plan_of())


@pytest.fixture
def folder(tmp_path: Path) -> LocalFolder:
    return LocalFolder(str(tmp_path))


def test_record_replaces_earlier_ones(folder: LocalFolder) -> None:
    records = SparkRecords(folder)
    assert records.last is None
    records.write(RECORD)
    assert SparkRecords(folder).last == RECORD
    later = replace(RECORD, fields={"f": ["a"]})
    SparkRecords(folder).write(later)
    assert SparkRecords(folder).last == later
    assert list(folder.sizes("dsv2/job")) == ["1.json"]
    SparkRecords(folder).write(later)
    assert list(folder.sizes("dsv2/job")) == ["1.json"], "nothing is new"


def test_record_that_two_drivers_have_written_is_replaced(folder: LocalFolder) -> None:
    for number, batch_id in enumerate((3, 4)):
        SparkRecords(LocalFolder(folder.place(str(number)))).write(replace(RECORD, batch_id=batch_id))
        folder.write(f"dsv2/job/{number}.json", folder.read(f"{number}/dsv2/job/0.json") or b"")
    records = SparkRecords(folder)
    assert records.last == replace(RECORD, batch_id=4)
    records.write(RECORD)
    assert list(folder.sizes("dsv2/job")) == ["2.json"]


def test_generation_begins_with_its_first_micro_batch(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert not Generation(checkpoint.folder).has_begun
    checkpoint.begin(0, None, None, None, {"position": 1})
    assert Generation(checkpoint.folder).has_begun


@pytest.mark.parametrize("batches", [0, 1])
def test_checkpoint_of_another_query_is_refused(tmp_path: Path, batches: int) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.folder.remove("dsv2")
    for batch_id in range(batches):
        checkpoint.begin(batch_id, {"position": 1})
    with pytest.raises(IncompatibleCheckpointError, match=r"not one of dsv2 \(it has no dsv2/job\)"):
        Generation(checkpoint.folder)


@pytest.mark.parametrize("part", ["checkpoint_id", "programs", "layout", "owner", "sinks"])
@pytest.mark.parametrize("value", [None, 7, "seven", [1], {"a": 1}])
def test_damaged_record_is_refused(folder: LocalFolder, part: str, value: Any) -> None:
    if (part, value) == ("owner", "seven"):
        value = []
    SparkRecords(folder).write(RECORD)
    entry = from_json(folder.read("dsv2/job/0.json"))
    folder.write("dsv2/job/0.json", to_json(entry | {part: value}))
    with pytest.raises(CorruptDataError, match=r"dsv2/job/0\.json is damaged: .*Restore it from a backup"):
        SparkRecords(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data[: len(data) // 2], "is damaged"),
        (lambda data: b"{}", "is damaged: its part 'job_id' is missing"),
        (lambda data: b"7", "is damaged: it is not a JSON object"),
        (lambda data: data.replace(b'"format_version": ', b'"format_version": 9'), "is damaged: its crc32 is not "),
    ],
)
def test_changed_file_is_noticed(folder: LocalFolder, change: Any, said: str) -> None:
    SparkRecords(folder).write(RECORD)
    folder.write("dsv2/job/0.json", change(folder.read("dsv2/job/0.json")))
    with pytest.raises(CorruptDataError, match=said):
        SparkRecords(folder)


def test_record_of_another_version_is_refused(folder: LocalFolder) -> None:
    SparkRecords(folder).write(RECORD)
    entry = from_json(folder.read("dsv2/job/0.json"))
    folder.write("dsv2/job/0.json", to_json(entry | {"version": 9, "dsv2": "9.9"}))
    with pytest.raises(IncompatibleCheckpointError, match=r"format version 9.*that wrote it \(9\.9\)"):
        SparkRecords(folder)


def test_reports_of_subtasks_are_recorded() -> None:
    sample: KeySample = {"key_of": "f", "input": 0, "record": "AAAA", "hash": 1, "key": "'a'"}
    first = RECORD.with_report(TaskReport(fields=[("f", "b")], keys=[sample]))
    second = first.with_report(TaskReport(fields=[("f", "a")], keys=[sample]))
    assert second == replace(RECORD, keys=[sample], fields={"f": ["a", "b"]})


def test_ended_subtasks_of_sources_are_recorded() -> None:
    first = RECORD.with_ended([("a", 1)], {"a": 2, "b": 1})
    assert (first.ended_of("a", 2), first.ended_of("b", 1)) == ([False, True], [False])
    assert first.ended_of("a", 3) == [False, False, False]  # splits may have moved
    assert first.ended == []
    second = first.with_ended([("a", 0), ("b", 0)], {"a": 2, "b": 1})
    assert second.ended_subtasks == {"a": [True, True], "b": [True]}
    assert second.ended == ["a", "b"]
    assert second.ended_of("a", 3) == [True, True, True]
    assert first.with_ended([("a", 0)], {"a": 1}).ended_subtasks == {"a": [True]}


def test_record_lists_possible_writers_of_its_first_batch() -> None:
    begins = [
        ("a", Beginning(0, repeats=False), ["a"]),
        ("b", Beginning(0, repeats=True), ["a", "b"]),
        ("c", Beginning(0, repeats=True), ["a", "b", "c"]),
        ("d", Beginning(7, repeats=True), ["c", "d"]),
        ("e", Beginning(7, repeats=True), ["c", "d", "e"]),
        ("f", Beginning(8, repeats=False), ["f"]),
        ("g", Beginning(8, repeats=True), ["f", "g"]),
    ]
    record = RECORD
    for run_id, beginning, runs in begins:
        record = record.with_run(run_id, beginning)
        assert record.runs == runs
