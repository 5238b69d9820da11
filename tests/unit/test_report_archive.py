"""Reports of readers in a checkpoint, from one run to the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv2 import CorruptDataError, ExecutionEnvironment
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.extension.event_time import EventTimeExtension
from dsv2.folders import Folder, LocalFolder
from dsv2.graph import Plan
from dsv2.runtime.sources.offsets import Report
from dsv2.sinks import CollectSink
from runtime_spark.source_reports import ReportArchive, ReportFile


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    env = ExecutionEnvironment.get_instance("local")
    watermarks = EventTimeExtension.new_watermark_generator_builder(len).build_as_watermark_strategy()
    lines = env.from_source(FilesSource(tmp_path, text_lines(str), pattern="*.txt"), "lines", watermarks=watermarks)
    lines.to_sink(CollectSink())
    return env.build_plan()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Folder:
    return LocalFolder(str(tmp_path / "ck [1]"))


def archive_of(checkpoint: Folder, plan: Plan, folder: Path) -> ReportArchive:
    folder.mkdir(exist_ok=True)
    return ReportArchive(checkpoint, plan, str(folder))


def report(plan: Plan, number: int) -> Report:
    return {"source": plan.operators[0].uid, "subtask": number}


def test_next_run_gets_the_last_report(checkpoint: Folder, plan: Plan, tmp_path: Path) -> None:
    archive = archive_of(checkpoint, plan, tmp_path / "a")
    archive.restore()
    for batch_id in range(5):
        archive.add(batch_id, [report(plan, batch_id)] if batch_id != 3 else [])
    assert checkpoint.numbers("dsv2/reports", suffix=".json") == [2, 4]
    archive_of(checkpoint, plan, tmp_path / "b").restore()
    assert ReportFile(str(tmp_path / "b"), 0).read() == [report(plan, 4)]


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"reports": 7}', '{"reports": {"lines-0": 7}}'])
def test_damaged_report_is_named_and_may_be_deleted(checkpoint: Folder, plan: Plan, tmp_path: Path, text: str) -> None:
    archive = archive_of(checkpoint, plan, tmp_path / "a")
    for batch_id in range(2):
        archive.add(batch_id, [report(plan, batch_id)])
    checkpoint.write("dsv2/reports/1.json", text.encode())
    with pytest.raises(CorruptDataError) as refused:
        archive_of(checkpoint, plan, tmp_path / "b").restore()
    assert str(refused.value).startswith(f"{checkpoint.path}/dsv2/reports/1.json is damaged: ")
    assert "or delete it" in str(refused.value)
    checkpoint.delete("dsv2/reports/1.json")
    archive_of(checkpoint, plan, tmp_path / "b").restore()
    assert ReportFile(str(tmp_path / "b"), 0).read() == [report(plan, 0)]
