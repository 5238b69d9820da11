"""The driver's view of the reports of its subtasks: counts, and whether all input has ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from dsv2.graph import Plan
from dsv2.jobs import BatchProgress, JobProgress, OperatorProgress, SubtaskProgress
from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.report.subtask_report import SubtaskReport
from dsv2.sinks import CollectSink
from tests.spans import Spans
from tests.support import local_environment, one_input


def report(
    uid: str, subtask: int = 0, *, records_in: int = 0, records_out: int = 0, ended: bool = False, **counters: int
) -> SubtaskReport:
    return SubtaskReport(uid, subtask, records_in, [records_out], counters=counters, ended=ended)


def held(subtask: int, records: int) -> SubtaskReport:
    return SubtaskReport("f", subtask, outputs=[0], records_held=records)


def reports_of(*ended_sources: tuple[str, int]) -> JobReports:
    """Of a source with a function chained to it, an operator of two subtasks, and a source that a sink reads."""
    env = local_environment()
    source: Any = env.from_source(Spans({"a": 9})).with_uid("source").map(str).with_uid("chained")
    source.shuffle().process(one_input()).with_uid("f").with_parallelism(2).to_sink(CollectSink())
    env.from_source(Spans({"b": 9})).with_uid("direct").to_sink(CollectSink())
    return JobReports(env.build_plan(), ended_sources, in_portions=True)


def test_portions_of_sources_are_summed() -> None:
    reports = reports_of()
    assert reports.progress().batch_id == -1
    for batch_id in range(3):
        of_source = [report("source", records_out=5, skipped=1), report("chained", records_in=5, records_out=4)]
        of_subtasks = [report("f", number, records_in=batch_id, late=batch_id) for number in (0, 1)]
        reports.add(batch_id, [*of_source, *of_subtasks], 0)
    progress = reports.progress()
    assert progress.batch_id == 2
    assert dict(progress.operators["source"].counters) == {"skipped": 3}
    assert (progress.operators["chained"].records_in, progress.operators["chained"].records_out) == (15, 12)
    assert progress.operators["f"].records_in == 4, "operators count themselves"
    assert dict(progress.operators["f"].counters) == {"late": 4}
    assert progress.operators["direct"].subtasks == (), "it has not reported"


def test_all_subtasks_and_sources_of_sinks_must_end() -> None:
    reports = reports_of()
    assert not reports.all_ended()
    reports.add(0, [report("f", 0, ended=True), report("f", 1), report("direct", ended=True)], 0)
    assert not reports.all_ended()
    reports.add(1, [report("f", 1, ended=True)], 0)
    assert reports.all_ended()


def test_source_that_ended_in_an_earlier_run_reports_nothing() -> None:
    reports = reports_of(("direct", 0))
    reports.add(0, [report("f", 0, ended=True), report("f", 1, ended=True)], 0)
    assert reports.all_ended()


def test_held_records_are_counted_by_operator() -> None:
    reports = reports_of()
    reports.add(0, [held(0, 2), held(1, 3)], 0)
    assert {name.partition(" (uid")[0]: count for name, count in reports.held().items()} == {"Process": 5}
    reports.add(1, [held(0, 0), held(1, 0)], 0)
    assert reports.held() == {}


def earlier(batch_id: int, *outputs: int, counters: Mapping[str, int]) -> JobProgress:
    """Of an earlier run, with a subtask of the source for each of ``outputs``."""
    subtasks = tuple(SubtaskProgress(number, outputs=(count,)) for number, count in enumerate(outputs))
    source = OperatorProgress("source", "Source", records_out=sum(outputs), counters=counters, subtasks=subtasks)
    return JobProgress(batch_id, {"source": source}, (BatchProgress(batch_id, 1_000, 5.0),))


def plan_of_one_source() -> Plan:
    env = local_environment()
    env.from_source(Spans({"a": 9})).with_uid("source").shuffle().process(one_input()).with_uid("f")
    return env.build_plan()


@pytest.mark.parametrize("in_portions", [True, False])
def test_counts_of_sources_continue_those_of_earlier_runs(in_portions: bool) -> None:
    before = earlier(6, 10, 20, counters={"skipped": 3})
    reports = JobReports(plan_of_one_source(), before=before, is_new=False, in_portions=in_portions)
    assert reports.progress().operators["source"].records_out == 30, "the source may have ended"
    for batch_id in (7, 8):
        reports.add(batch_id, [report("source", records_out=2, skipped=1)], 0)
    source = reports.progress().operators["source"]
    added = 2 if in_portions else 1
    assert (source.records_out, source.counters) == (30 + 2 * added, {"skipped": 3 + added})
    assert [subtask.subtask for subtask in source.subtasks] == [0], "the parallelism has changed"


def test_first_micro_batch_of_a_restarted_job_has_rates_only_with_the_progress_before_it() -> None:
    def rate(**options: Any) -> float:
        reports = JobReports(plan_of_one_source(), in_portions=True, **options)
        of_source, of_function = report("source", records_out=4), report("f", records_in=104)
        batch = reports.add(7, [of_source, of_function], 0)
        reports.complete(batch, 0, 500.0, {})
        return reports.progress().operators["f"].records_in_per_second

    known = earlier(6, 100, counters={})
    function = OperatorProgress("f", "Process", records_in=100)
    before = JobProgress(6, {**known.operators, "f": function})
    assert rate(is_new=False) == 0.0, "what is new is unknown"
    assert rate(is_new=False, before=before) == 8.0
    assert rate(is_new=True) == 208.0


def test_history_continues_after_a_restart() -> None:
    reports = JobReports(plan_of_one_source(), before=earlier(6, 1, counters={}), in_portions=True)
    reports.complete(reports.add(7, [], 0), 2_000, 5.0, {})
    assert [batch.batch_id for batch in reports.progress().batches] == [6, 7]


def test_times_are_added_up_in_a_run() -> None:
    reports = JobReports(plan_of_one_source(), in_portions=True)
    for batch_id in range(3):
        reports.add(batch_id, [SubtaskReport("f", 0, user_ns=1_500_000)], 0)
    (subtask,) = reports.progress().operators["f"].subtasks
    assert subtask.user_time_ms == 4.5


def test_sources_and_outputs_that_the_program_has_changed_begin_again() -> None:
    before = earlier(6, 10, counters={"skipped": 3})
    other = JobProgress(6, {"another": before.operators["source"]}, before.batches)
    reports = JobReports(plan_of_one_source(), before=other, in_portions=True)
    assert reports.progress().operators["source"].records_out == 0
    two_outputs = replace(before.operators["source"], subtasks=(SubtaskProgress(0, outputs=(10, 10)),))
    reports = JobReports(plan_of_one_source(), before=JobProgress(6, {"source": two_outputs}), in_portions=True)
    reports.add(7, [report("source", records_out=2)], 0)
    source = reports.progress().operators["source"]
    assert (source.records_out, source.counters) == (2, {"skipped": 3})
