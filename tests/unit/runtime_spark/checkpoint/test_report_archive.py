"""Reports of readers in a checkpoint, from one run to the next."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from dsv2 import ExecutionEnvironment
from dsv2.base.folders import Folder, LocalFolder
from dsv2.connectors.files import FilesSource, text_lines
from dsv2.errors import CorruptDataError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.graph import Plan
from dsv2.runtime.sources.offsets import Report
from dsv2.sinks import CollectSink
from runtime_spark.checkpoint.source_reports import FileBoard, ReportArchive, ReportFile, StoredReports
from tests.support import operator_named


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
    return ReportArchive(checkpoint, StoredReports(checkpoint), plan, str(folder))


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


def test_reports_that_were_not_written_are_empty(tmp_path: Path) -> None:
    assert ReportFile(str(tmp_path), 0).read() == []


def test_job_without_reports_has_no_files(checkpoint: Folder, tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).to_sink(CollectSink())
    archive = archive_of(checkpoint, env.build_plan(), tmp_path / "a")
    archive.restore({"other": []})
    archive.add(0, [])
    assert list((tmp_path / "a").iterdir()) == []
    assert checkpoint.numbers("dsv2/reports", suffix=".json") == []


def test_planners_of_a_group_see_each_other(tmp_path: Path) -> None:
    env = ExecutionEnvironment.get_instance("local")
    generator = EventTimeExtension.new_watermark_generator_builder(len)
    aligned = generator.build_as_watermark_strategy().with_watermark_alignment("g", timedelta(seconds=1))
    for name in ("a", "b"):
        source = FilesSource(tmp_path, text_lines(str), pattern="*.txt")
        env.from_source(source, name, watermarks=aligned).with_uid(name).to_sink(CollectSink())
    plan = env.build_plan()
    first, second = (operator_named(plan, uid).id for uid in ("a", "b"))
    boards = [FileBoard(plan, str(tmp_path)) for _ in range(2)]  # each in its own process
    boards[0].report(first, 7)
    assert boards[0].least("g") == (False, 7)
    boards[1].report(second, 5)
    assert boards[0].least("g") == boards[1].least("g") == (True, 5)
    boards[1].report(second, None)  # idle
    assert boards[0].least("g") == (True, 7)
    written = (tmp_path / f"{second}.time").stat().st_ino
    boards[1].report(second, None)
    assert (tmp_path / f"{second}.time").stat().st_ino == written, "nothing is new"


def test_reports_of_sources_that_are_gone_are_left_out(checkpoint: Folder, plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(exist_ok=True)
    archive = archive_of(checkpoint, plan, tmp_path / "a")
    archive.restore({"gone": [{"source": "gone"}]})
    archive.add(0, [report(plan, 0)])
    assert "gone" not in (checkpoint.read("dsv2/reports/0.json") or b"").decode()
