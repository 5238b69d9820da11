"""What a driver knows from the reports of its subtasks: counts, and whether all input has ended."""

from __future__ import annotations

from typing import Any

from dsv2.runtime.report.job_reports import JobReports
from dsv2.runtime.report.subtask_report import new_report
from dsv2.sinks import CollectSink
from tests.spans import Spans
from tests.support import local_environment, one_input


def report(uid: str, subtask: int = 0, *, ended: bool = False, held: int = 0, **counts: int) -> dict[str, Any]:
    return new_report(
        uid,
        subtask,
        records_in=counts.pop("records_in", 0),
        outputs=[counts.pop("records_out", 0)],
        counters=counts,
        records_held=held,
        ended=ended,
    )


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
        reports.add(batch_id, [*of_source, *of_subtasks])
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
    reports.add(0, [report("f", 0, ended=True), report("f", 1), report("direct", ended=True)])
    assert not reports.all_ended()
    reports.add(1, [report("f", 1, ended=True)])
    assert reports.all_ended()


def test_source_that_ended_in_an_earlier_run_reports_nothing() -> None:
    reports = reports_of(("direct", 0))
    reports.add(0, [report("f", 0, ended=True), report("f", 1, ended=True)])
    assert reports.all_ended()


def test_held_records_are_counted_by_operator() -> None:
    reports = reports_of()
    reports.add(0, [report("f", 0, held=2), report("f", 1, held=3)])
    assert {name.partition(" (uid")[0]: count for name, count in reports.held().items()} == {"Process": 5}
    reports.add(1, [report("f", 0), report("f", 1)])
    assert reports.held() == {}
