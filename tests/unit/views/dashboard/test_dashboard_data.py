"""The data that a dashboard derives from the progress of a job: history, pressure, and places in the graph."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from dsv2 import CollectSink
from dsv2.base.folders import LocalFolder
from dsv2.dead_letters.store import FOLDER, JobDescription, JobLetters
from dsv2.errors import ConfigurationError
from dsv2.jobs.configuration import Section, Setting
from dsv2.jobs.progress import BatchProgress, JobProgress, OperatorProgress, SplitProgress, SubtaskProgress
from dsv2.jobs.progress_log import ProgressLog
from dsv2.jobs.summary.event_time import Slowest, watermark_of
from dsv2.jobs.summary.history import HISTORY, History, Moment, OperatorMoment
from dsv2.jobs.summary.pressure import WINDOW, Level, pressure_of
from dsv2.plan_view.view import view_of
from dsv2.views.dashboard import letters
from dsv2.views.dashboard import stored_job as stored
from dsv2.views.dashboard.jobs import Board, Record, Status
from dsv2.views.dashboard.json_lines import watermark_text
from dsv2.views.dashboard.letters import last_letters
from dsv2.views.dashboard.pages import state_page
from dsv2.views.dashboard.stored_job import CheckpointJob
from dsv2.views.dashboard.watermarks import watermark_page
from dsv2.views.explain import PlanView
from dsv2.views.explain.svg import graph_svg
from dsv2.watermark.event_time import EVENT_TIME, LONG_MAX, LONG_MIN
from tests.dashboard_fakes import FakeJob, Join, fake_plan, fake_progress
from tests.support import local_environment


def progress(number: int, **operators: OperatorProgress) -> JobProgress:
    return JobProgress(number, operators, (BatchProgress(number, 1000 * number, 100.0),))


def operator(uid: str, records: int = 0, times: Sequence[float] = ()) -> OperatorProgress:
    subtasks = tuple(SubtaskProgress(number, user_time_ms=time) for number, time in enumerate(times))
    return OperatorProgress(uid, uid, records_in=records, records_out=2 * records, subtasks=subtasks)


def change(before: JobProgress | None, now: JobProgress, **chained: tuple[str, ...]) -> Moment:
    history = History()
    history._chained = {uid: list(inner) for uid, inner in chained.items()}
    if before is not None:
        history.add(before)
    moment = history.add(now)
    assert moment is not None
    return moment


def test_a_moment_is_the_difference_of_two_reports() -> None:
    moment = change(
        progress(1, a=operator("a", 10, [1.0, 5.0])),
        progress(2, a=operator("a", 30, [31.0, 15.0]), new=operator("new")),
    )
    assert moment.operators["a"] == OperatorMoment(records_in=20, records_out=40, busy_ms=30.0)
    assert moment.operators["new"] == OperatorMoment(), "what it did before is not known"


def test_time_of_chained_operators_is_theirs() -> None:
    before = progress(1, head=operator("head", 0, [0.0, 0.0]), inner=operator("inner", 0, [0.0, 0.0]))
    now = progress(2, head=operator("head", 0, [50.0, 80.0]), inner=operator("inner", 0, [10.0, 75.0]))
    moment = change(before, now, head=("inner",))
    assert (moment.operators["head"].busy_ms, moment.operators["inner"].busy_ms) == (40.0, 75.0)


def test_time_begins_again_with_a_run() -> None:
    moment = change(progress(1, a=operator("a", 10, [500.0])), progress(2, a=operator("a", 12, [20.0])))
    assert moment.operators["a"].busy_ms == 20.0


def test_first_micro_batch_of_all() -> None:
    moment = change(None, progress(0, a=operator("a", 10, [20.0])))
    assert moment.operators["a"] == OperatorMoment(records_in=10, records_out=20, busy_ms=20.0)


def test_first_report_and_report_without_times() -> None:
    assert change(None, progress(4, a=operator("a", 99, [1.0]))).operators["a"] == OperatorMoment()
    assert History().add(JobProgress(4, {})) is None


def test_size_of_state_is_that_of_all_subtasks() -> None:
    subtasks, none = (SubtaskProgress(0, state_bytes=10), SubtaskProgress(1, state_bytes=30)), (SubtaskProgress(0),)
    now = progress(
        1, a=OperatorProgress("a", "a", state_bytes=30, subtasks=subtasks), b=OperatorProgress("b", "b", subtasks=none)
    )
    assert change(None, now).state_bytes == 40
    assert change(None, progress(1, b=OperatorProgress("b", "b", subtasks=none))).state_bytes is None, "unknown"


def history(*operators: OperatorMoment) -> list[Moment]:
    return [Moment(BatchProgress(number, 0, 100.0), 100.0, 100.0, {"a": one}) for number, one in enumerate(operators)]


@pytest.mark.parametrize(
    ("moments", "level", "reason"),
    [
        ([], Level.UNKNOWN, ""),
        ([OperatorMoment()], Level.IDLE, ""),
        ([OperatorMoment(records_in=1)], Level.LOW, ""),
        ([OperatorMoment(records_out=1, busy_ms=29.0)], Level.LOW, ""),
        ([OperatorMoment(records_in=1, busy_ms=30.0)], Level.BUSY, "30% of the time"),
        ([OperatorMoment(records_in=1, busy_ms=60.0)], Level.HIGH, "60% of the time"),
        ([OperatorMoment(records_held=5), OperatorMoment(records_held=1_005)], Level.BUSY, "holds 1,005 records"),
        ([OperatorMoment(records_held=5), OperatorMoment(records_held=5)], Level.IDLE, ""),
        ([OperatorMoment(lag=1000 + number) for number in range(WINDOW)], Level.HIGH, "1,004 records are available"),
        ([OperatorMoment(lag=number) for number in (1, 2, 3, 3, 4)], Level.IDLE, ""),
        ([OperatorMoment(lag=1 + number, records_out=60) for number in range(WINDOW)], Level.LOW, ""),
        ([OperatorMoment(lag=number) for number in range(WINDOW - 1)], Level.IDLE, ""),
        ([OperatorMoment(lag=9), *([OperatorMoment(busy_ms=1.0)] * WINDOW)], Level.IDLE, ""),
    ],
)
def test_pressure(moments: Sequence[OperatorMoment], level: Level, reason: str) -> None:
    found = pressure_of("a", history(*moments))
    assert found.level is level
    assert reason in "; ".join(found.reasons)
    assert bool(reason) == bool(found.reasons)


def test_memory_is_bounded() -> None:
    record = Record()
    for number in range(3 * HISTORY):
        record.add(progress(number))
    found = record.snapshot().history
    assert [moment.batch.batch_id for moment in found] == list(range(2 * HISTORY, 3 * HISTORY))


def test_jobs_that_have_ended_leave_a_full_board() -> None:
    board = Board()
    running = board.add(FakeJob(0))
    for _ in range(40):
        ended = FakeJob(0)
        ended.record.end(Status.FINISHED)
        board.add(ended)
    assert len(board.jobs) == 20
    assert running in board.jobs


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (0, "1970-01-01 00:00:00"),
        (1_364_774_400_500, "2013-04-01 00:00:00.500"),
        (LONG_MAX, "end of input"),
        (LONG_MIN, ""),
        (LONG_MAX - 1, "9223372036854775806 ms"),
        (-62_135_596_800_001, "-62135596800001 ms"),
    ],
)
def test_event_time_as_text(value: int | None, text: str) -> None:
    assert watermark_text(EVENT_TIME, value) == text


def test_other_watermarks_as_text() -> None:
    assert watermark_text("closed", LONG_MAX) == str(LONG_MAX)
    assert watermark_text("ready", True) == "True"


def edges(view: PlanView) -> dict[tuple[int, int], str]:
    """The paths of the edges of the graph, by the ids of their ends."""
    found = [one for one in ET.fromstring(graph_svg(view, 2)).iter() if one.get("data-edge")]
    ids = [tuple(map(int, one.attrib["data-edge"].split("-"))) for one in found]
    return {(source, target): one.attrib["d"] for (source, target, _), one in zip(ids, found, strict=True)}


def split(name: str, time: int | None, moved: int | None) -> SplitProgress:
    return SplitProgress(name, 0, event_time=time, moved_at_ms=moved)


@pytest.mark.parametrize(
    ("splits", "troubled"),
    [
        ([split("a", 5, 90_000), split("b", 9, 90_000)], ""),
        ([split("a", 5, 3_000), split("b", 9, 90_000)], "a"),
        ([split("a", 5, None), split("b", 9, 90_000)], "a"),
        ([split("a", None, None), split("b", 9, 90_000)], "a"),
        ([replace(split("a", 5, 3_000), idle=True), split("b", 9, 90_000)], ""),
        ([replace(split("a", 5, 3_000), ended=True), split("b", 9, 90_000)], ""),
        ([replace(split("a", 5, 3_000), paused=True), split("b", 9, 90_000)], ""),
        ([split("a", 5, 3_000)], ""),
        ([split("a", 5, 3_000), split("b", 4, 3_000), split("c", 9, 90_000)], "b"),
        ([split("a", 5, 3_000), split("b", 5, 3_000)], ""),
    ],
)
def test_split_that_holds_event_time_back(splits: Sequence[SplitProgress], troubled: str) -> None:
    job = FakeJob(0)
    job.record.add(progress(0, orders=OperatorProgress("orders", "orders", splits=tuple(splits))))
    page = state_page(job.record.snapshot(), ())
    assert "".join(line["split"] for line in page.splits if line["trouble"]) == troubled


def test_page_of_watermarks_names_the_split() -> None:
    page = watermark_page(FakeJob(30).record.snapshot(), "")
    (join,) = (line for line in page.operators if line["title"] == "join")
    assert (page.identifier, join["split"], join["is_fine"]) == ("event-time", "rates-3", False)
    assert [step["text"] for step in join["path"]] == ["join, subtask 0", "rates, subtask 1"]
    assert [line["channel"] for line in join["channels"] if line["holds_back"]] == [1]
    assert "rates-3" in join["sentence"]


def test_page_of_watermarks_before_any_progress() -> None:
    assert watermark_page(FakeJob(0).record.snapshot(), "").operators == ()


def stored_job(folder: Path) -> ProgressLog:
    log = ProgressLog(LocalFolder(str(folder)), 0, (Section("Job", (Setting("name", "x"),)),))
    log.add_job(fake_plan(), 5)
    return log


def looking(job: CheckpointJob) -> CheckpointJob:
    job._looked_at = float("-inf")  # it looks only once per second
    job.refresh()
    return job


def test_stored_job(tmp_path: Path) -> None:
    log = stored_job(tmp_path)
    for number in range(3):
        log.add(fake_progress(number))
    job = looking(CheckpointJob(LocalFolder(str(tmp_path))))
    snapshot, live = job.record.snapshot(), FakeJob(3).record.snapshot()
    assert (snapshot.status, snapshot.name, snapshot.plan) == (Status.STORED, "orders in euros", live.plan)
    assert list(snapshot.history) == list(live.history)
    assert snapshot.configuration == (Section("Job", (Setting("name", "x"),)),)
    before = snapshot.revision
    assert looking(job).record.snapshot().revision == before, "nothing has changed"
    log.add(fake_progress(3))
    assert looking(job).record.snapshot().history[-1].batch.batch_id == 3


def test_checkpoint_without_progress(tmp_path: Path) -> None:
    snapshot = looking(CheckpointJob(LocalFolder(str(tmp_path)))).record.snapshot()
    assert (snapshot.name, snapshot.progress, snapshot.error) == (str(tmp_path), None, "")


def test_damaged_progress_is_reported_until_it_is_gone(tmp_path: Path) -> None:
    log = stored_job(tmp_path)
    log.add(fake_progress(0))
    file = tmp_path / "dsv2/progress/1.json"
    file.write_text("{")
    job = looking(CheckpointJob(LocalFolder(str(tmp_path))))
    assert "1.json is damaged" in job.record.snapshot().error
    file.unlink()
    assert looking(job).record.snapshot().error == ""
    assert len(job.record.snapshot().history) == 1


def test_no_dead_letters(tmp_path: Path) -> None:
    assert last_letters(None).letters == ()
    assert last_letters(LocalFolder(str(tmp_path))).letters == ()


def test_page_of_a_job_without_progress() -> None:
    page = state_page(replace(FakeJob(0).record.snapshot(), plan=None), ())
    assert (page.operators, page.splits, page.summary["batch_id"]) == ({}, (), -1)


def test_progress_without_times_adds_nothing_to_the_history() -> None:
    job = FakeJob(2)
    before = job.record.snapshot()
    job.record.add(JobProgress(2, {}))
    after = job.record.snapshot()
    assert (after.history, after.updated_at_ms) == (before.history, before.updated_at_ms)
    assert after.progress == JobProgress(2, {})


def test_edge_over_several_rows_is_straight_between_the_cards() -> None:
    env = local_environment()
    numbers = env.from_collection([1], "numbers").with_uid("numbers").shuffle()
    late = numbers.map(abs).with_uid("one").shuffle().map(abs).with_uid("two").key_by(abs)
    late.connect_and_process(numbers.key_by(abs), Join()).with_uid("join").to_sink(CollectSink())
    view = view_of(env.build_plan())
    uids = [operator.uid for operator in view.operators]
    ends = {(uids[source], uids[target]): path for (source, target), path in edges(view).items()}
    longest, next_row = ends["numbers", "join"], ends["one", "two"]
    assert ("L" in longest, "L" in next_row) == (True, False)
    (straight,) = (part.partition("C")[0] for part in longest.split("L")[1:2])
    before = longest.partition("L")[0].split()[-2]
    assert straight.split()[0] == before, "a straight leg keeps its place"


def test_watermark_that_no_subtask_has_is_not_listed() -> None:
    found = replace(fake_progress(1).operators["join"], watermarks={"closed": (None, None), "ready": (None, 7)})
    assert watermark_of(found, "closed") is None
    assert watermark_of(found, "ready") == Slowest(7, 7, without=1, parts=2)


def test_job_that_has_ended_is_as_old_as_its_last_micro_batch() -> None:
    job = FakeJob(3)
    job.record.end(Status.FINISHED)
    snapshot = job.record.snapshot()
    assert watermark_page(snapshot, "").now_ms == snapshot.updated_at_ms


def test_a_checkpoint_offers_savepoints_only_if_they_can_be_taken(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    job = CheckpointJob(folder)
    assert (job.actions, job.letters_folder()) == ((), folder)
    with pytest.raises(ConfigurationError, match="cannot be stopped here"):
        job.stop()
    with pytest.raises(ConfigurationError, match="with: dsv2 savepoint create CHECKPOINT /there"):
        job.savepoint("/there")
    job = CheckpointJob(folder, lambda path: f"{path}/taken")
    assert (job.actions, job.savepoint("/there")) == (("savepoint",), "/there/taken")


def test_a_checkpoint_is_read_by_one_request_at_a_time_and_not_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_LOOK_SECONDS", 3_600.0)
    log = stored_job(tmp_path)
    job = CheckpointJob(LocalFolder(str(tmp_path)))
    with job._lock:
        job.refresh()
    assert job.record.snapshot().plan is None, "another request is reading"
    job.refresh()
    log.add(fake_progress(0))
    job.refresh()
    assert job.record.snapshot().plan is not None
    assert job.record.snapshot().history == (), "it has just been read"


def test_plan_that_cannot_be_shown_is_reported(tmp_path: Path) -> None:
    stored_job(tmp_path)
    file = tmp_path / "dsv2/progress/plan.json"
    content = json.loads(file.read_text())
    content["job"]["plan"]["operators"] = 7
    file.write_text(json.dumps(content))
    job = looking(CheckpointJob(LocalFolder(str(tmp_path))))
    assert "The plan in the checkpoint cannot be shown: " in job.record.snapshot().error


def letter(record: int) -> dict[str, object]:
    texts = ("operator", "callback", "key", "error_type", "error_message", "traceback", "location")
    nothing = dict.fromkeys(("input", "timestamp", "position", "obstacle", "payload"))
    times = {"time": "2026-01-01T00:00:00+00:00", "subtask": 0, "parallelism": 1}
    return {**dict.fromkeys(texts, ""), **nothing, **times, "record": str(record)}


def test_only_the_newest_dead_letters_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "_MOST", 3)
    folder = LocalFolder(str(tmp_path))
    job = JobLetters(folder.subfolder(FOLDER), "0" * 8)
    job.describe(JobDescription("orders", str(tmp_path)))
    for batch_id in range(3):
        job.write(
            batch_id, [letter(number) | {"error_message": str(number)} for number in (10 * batch_id, 10 * batch_id + 1)]
        )
    found = last_letters(folder)
    assert [one["record"] for one in found.letters] == ["21", "20", "11"]
    assert found.batches == 3
    assert found.note == f"1 more micro-batches have letters: dsv2 dead-letters show {tmp_path}"


def test_equal_errors_are_one_with_a_count(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    job = JobLetters(folder.subfolder(FOLDER), "0" * 8)
    job.describe(JobDescription("orders", str(tmp_path)))
    for batch_id in range(50):
        other = letter(1000 + batch_id) | {"error_message": "another"}
        job.write(batch_id, [letter(batch_id), letter(batch_id), other])
    found = last_letters(folder)
    assert [(one["error"], one["count"], one["record"]) for one in found.letters] == [
        (": another", 50, "1049"),
        (": ", 100, "49"),
    ]
