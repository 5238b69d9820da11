"""Progress from reports, task times and Spark's own durations; the thread that passes progress on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import nan
from types import SimpleNamespace
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.progress import report_of
from dsv2 import ExecutionEnvironment, JobHandle
from dsv2.base.folders import LocalFolder
from dsv2.checkpoint.task_report import TaskReport
from dsv2.graph import Plan
from dsv2.jobs import JobListener, JobProgress
from dsv2.jobs.progress_log import ProgressLog, read_job, read_progress
from dsv2.plan_view.runtime_view import RuntimeView
from dsv2.runtime.report.job_listeners import JobListeners
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.report.metrics import DefaultHistogram, merged
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.sinks import CollectSink
from runtime_spark.job.progress_thread import ProgressThread, QueryView, WrittenBatch
from runtime_spark.job.task_times import SparkTimes, TaskTimes, batch_phases, spark_times, task_times
from tests.durations import LONG
from tests.support import pass_on

_MOST_BYTES = 300
TIMES = SparkTimes(started_at=1_000, duration=500.0, planning=100.0, commit=50.0)


def plan_of_two_levels() -> Plan:
    env = ExecutionEnvironment.get_instance("local")
    env.set_parallelism(2)
    numbers = env.from_collection([1]).with_uid("in").shuffle().map(abs).with_uid("first")
    numbers.key_by(abs).process(pass_on).with_uid("second").to_sink(CollectSink()).with_uid("out")
    return env.build_plan("sums")


def test_reports_of_256_subtasks_are_small() -> None:
    report = TaskReport([report_of(subtask) for subtask in range(256)])
    payload = report.encoded()
    assert len(payload) <= 256 * _MOST_BYTES
    assert TaskReport.decoded([payload]) == report
    idle = TaskReport([SubtaskReport("a descriptive uid", subtask, outputs=[0]) for subtask in range(256)])
    assert len(idle.encoded()) <= 256 * 50


def test_reports_carry_all_numbers() -> None:
    histograms = {"empty": DefaultHistogram("empty", [1.0]).parts()}
    gauges: Any = {"nan": nan, "numpy": np.float32(0.5), "flag": True}
    counters: Any = {"numpy": np.int64(2**63 - 1)}
    sent = SubtaskReport("f", 0, counters=counters, gauges=gauges, histograms=histograms)
    (received,) = TaskReport.decoded([TaskReport([sent]).encoded()]).subtasks
    assert received.counters == {"numpy": 2**63 - 1}
    assert repr(received.gauges) == "{'nan': nan, 'numpy': 0.5, 'flag': True}"
    assert merged([received.histograms["empty"]]) == merged([histograms["empty"]])


def test_repeated_tasks_report_once() -> None:
    first, other = (TaskReport([report_of(subtask)], keys=[], fields=[("f", "x")]) for subtask in (1, 2))
    again = TaskReport([replace(report_of(1), user_ns=7, span=(1, 2))], fields=[("f", "x")])
    payloads = [report.encoded() for report in (first, again, other)]
    assert TaskReport.distinct(payloads) == TaskReport.joined([first, other])


def test_phases_span_the_tasks_of_a_level() -> None:
    plan = plan_of_two_levels()
    spans = [("in", 0, 100, 180), ("first", 0, 200, 230), ("first", 1, 210, 260), ("second", 0, 300, 340)]
    reports = [SubtaskReport(uid, subtask, span=(begin, end)) for uid, subtask, begin, end in spans]
    tasks = task_times(plan, [*reports, SubtaskReport("second", 1)], now_ms=400)
    assert tasks == TaskTimes({"source": 80.0, "level 1": 60.0, "level 2": 40.0}, 100, 340)
    phases = batch_phases(2, tasks, planning=7.0, written_at=400, commit=9.0)
    assert list(phases.items()) == [
        ("planning", 7.0),
        ("source", 80.0),
        ("level 1", 60.0),
        ("level 2", 40.0),
        ("sinks", 60.0),
        ("commit", 9.0),
    ]


def test_a_micro_batch_without_reports_has_no_phases() -> None:
    tasks = task_times(plan_of_two_levels(), [], now_ms=400)
    phases = batch_phases(2, tasks, planning=0.0, written_at=390, commit=0.0)
    assert set(phases.values()) == {0.0}


def test_spark_measures_the_rest() -> None:
    durations = {"addBatch": 30, "commitOffsets": 5, "getBatch": 1, "latestOffset": 2, "queryPlanning": 3}
    durations |= {"triggerExecution": 60, "walCommit": 4}
    progress: Any = SimpleNamespace(durationMs=durations, timestamp="2026-01-01T00:00:00.250Z")
    assert spark_times(progress) == SparkTimes(1_767_225_600_250, 60.0, 10.0, 5.0)
    idle: Any = SimpleNamespace(durationMs={"latestOffset": 2, "triggerExecution": 3}, timestamp=progress.timestamp)
    assert spark_times(idle) is None


class Query:
    """A query whose micro-batches a test completes."""

    def __init__(self) -> None:
        self.times: dict[int, SparkTimes] = {}
        self.over = False
        self.settled = 0

    @property
    def view(self) -> QueryView:
        def settle() -> None:
            self.settled += 1

        return QueryView(lambda: self.over, self.times.get, settle)


class EventRecorder(JobListener):
    """Records what happens to a job."""

    def __init__(self, react: Callable[[JobProgress], None] = lambda progress: None) -> None:
        self.events: list[Any] = []
        self.changed = threading.Event()
        self._react = react

    def on_started(self, job: Any, plan: Plan) -> None:
        self.events.append("started")

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        self.events.append(progress.batch_id)
        self.changed.set()
        self._react(progress)

    def on_ended(self, job: Any) -> None:
        self.events.append("ended")


class Running:
    """A thread, with what it needs."""

    def __init__(self, folder: str, recorder: EventRecorder) -> None:
        self.plan, self.query = plan_of_two_levels(), Query()
        self.reports = JobReports(self.plan, in_portions=True)
        job: Any = None
        log, listeners = ProgressLog(LocalFolder(folder), 0), JobListeners([recorder])
        view = RuntimeView("Spark", one_process=False)
        self.thread = ProgressThread(self.plan, self.reports, log, listeners, view)
        self.thread.begin(job, self.query.view, 5)

    def write(self, number: int, batch_id: int) -> None:
        reported = self.reports.add(batch_id, [SubtaskReport("in", 0, outputs=[10])], 0)
        self.thread.add(WrittenBatch(number, reported, TaskTimes({}, 0, 0), 0))

    def end(self) -> None:
        self.query.over = True
        self.thread.end()
        assert not self.thread.is_alive()


def test_listeners_hear_of_a_micro_batch_when_it_is_complete(tmp_path: Any) -> None:
    recorder = EventRecorder()
    running = Running(str(tmp_path), recorder)
    running.write(0, 7)
    assert not recorder.changed.wait(0.1), "it is not complete"
    running.query.times[0] = TIMES
    assert recorder.changed.wait(LONG)
    running.end()
    assert recorder.events == ["started", 7, "ended"]
    assert running.query.settled == 1
    (stored,) = read_progress(tmp_path)
    assert stored == running.reports.progress()
    (batch,) = stored.batches
    assert (batch.batch_id, batch.started_at_ms, batch.duration_ms, batch.records_in) == (7, 1_000, 500.0, 10)
    assert stored.operators["in"].records_out_per_second == 20.0
    job = read_job(tmp_path)
    assert job is not None
    assert (job.name, job.started_at_ms) == ("sums", 5)


def test_a_micro_batch_that_fails_at_its_end_is_not_passed_on(tmp_path: Any) -> None:
    recorder = EventRecorder()
    running = Running(str(tmp_path), recorder)
    running.query.times[0] = TIMES
    running.write(0, 0)
    assert recorder.changed.wait(LONG)
    running.write(1, 1)
    running.end()
    assert recorder.events == ["started", 0, "ended"]
    assert [progress.batch_id for progress in read_progress(tmp_path)] == [0]


def test_all_micro_batches_arrive_before_the_end(tmp_path: Any) -> None:
    recorder = EventRecorder()
    running = Running(str(tmp_path), recorder)
    running.query.times |= dict.fromkeys(range(5), TIMES)
    for number in range(5):
        running.write(number, number)
    running.end()
    assert recorder.events == ["started", 0, 1, 2, 3, 4, "ended"]


def test_a_listener_may_wait_for_the_end(tmp_path: Any) -> None:
    recorder = EventRecorder(lambda progress: running.thread.end())
    running = Running(str(tmp_path), recorder)
    running.query.times[0] = TIMES
    running.write(0, 0)
    assert recorder.changed.wait(LONG)
    running.end()
    assert recorder.events == ["started", 0, "ended"]
