"""The numbers in the progress of local jobs: per subtask, rates, phases, and what continues after a restart."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dsv2 import (
    Collector,
    ErrorPolicy,
    ExecutionEnvironment,
    JobHandle,
    PartitionedContext,
    StateDeclaration,
    StateDeclarations,
)
from dsv2.base.clock import Clock
from dsv2.errors import UnreadStreamWarning
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.graph import Plan
from dsv2.jobs import JobProgress
from dsv2.jobs.progress_log import read_job, read_progress
from dsv2.local import LocalRuntime, execution, tasks
from dsv2.runtime.operator import job_context
from dsv2.runtime.report import phases
from dsv2.sinks import CollectSink, ForeachBatchSink
from dsv2.sources import DataGeneratorSource
from dsv2.testing import ManualClock
from tests.conformance.counts import KeptPlan, miscounts
from tests.spans import Spans
from tests.support import pass_on

TOTAL = StateDeclarations.value_state("total", int, default=0)


class Sum(OneInputStreamProcessFunction[int, int]):
    """Adds up numbers per key."""

    def uses_states(self) -> list[StateDeclaration]:
        return [TOTAL]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        total = ctx.state_manager.get_state(TOTAL)
        total.update(total.value() + record)
        output.collect(total.value())


def environment(
    source: Any = None,
    *,
    kept: KeptPlan | None = None,
    checks: bool = True,
    parallelism: int = 2,
    clock: Clock | None = None,
) -> ExecutionEnvironment:
    """A function chained to a source, a keyed function behind an exchange, and two sinks."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=checks, clock=clock))
    env.set_parallelism(parallelism)
    if kept is not None:
        env.add_job_listener(kept)
    records = env.from_source(source or DataGeneratorSource(int, count=30, records_per_batch=10)).with_uid("in")
    numbers = records.map(lambda record: getattr(record, "number", record)).with_uid("number")
    even = numbers.filter(lambda number: number % 2 == 0).with_uid("even")
    sums = even.key_by(lambda number: number % 4).process(Sum()).with_uid("sums")
    sums.to_sink(CollectSink()).with_uid("first")
    sums.to_sink(CollectSink()).with_uid("second")
    return env


def counts(progress: JobProgress) -> dict[str, tuple[int, int]]:
    return {uid: (operator.records_in, operator.records_out) for uid, operator in progress.operators.items()}


ALL = {"in": (0, 30), "number": (30, 30), "even": (30, 15), "sums": (15, 15), "first": (15, 0), "second": (15, 0)}


@pytest.mark.parametrize("checks", [True, False])
def test_sources_functions_and_sinks_are_counted(checks: bool) -> None:
    kept = KeptPlan()
    progress = environment(kept=kept, checks=checks).execute().progress
    assert counts(progress) == ALL
    assert miscounts(kept.plan, progress) == []
    source, sums = progress.operators["in"], progress.operators["sums"]
    assert [(subtask.subtask, subtask.records_out, subtask.outputs) for subtask in source.subtasks] == [
        (0, 15, (15,)),
        (1, 15, (15,)),
    ]
    assert sum(subtask.keys for subtask in sums.subtasks) == 2
    assert all(subtask.ended for subtask in sums.subtasks)


def test_miscounts_are_found() -> None:
    kept = KeptPlan()
    progress = environment(kept=kept).execute().progress
    sums = progress.operators["sums"]
    lost = replace(progress, operators={**progress.operators, "sums": replace(sums, records_in=14)})
    assert [text.partition(":")[2] for text in miscounts(kept.plan, lost)] == [
        " 14 received and 0 held of 15",
        " in: 14 is not 15",
    ]


class StopsSecond(KeptPlan):
    """Stops the job after its second micro-batch."""

    def on_started(self, job: JobHandle, plan: Plan) -> None:
        super().on_started(job, plan)
        self.job = job

    def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
        if progress.batch_id == 1:
            self.job.stop()


@pytest.mark.parametrize("new_source", [lambda: None, lambda: Spans({"a": 30}, limit=10)], ids=["indexed", "splits"])
def test_counts_continue_after_a_restart(tmp_path: Path, new_source: Callable[[], Any]) -> None:
    whole = environment(new_source()).execute().progress
    stopped = environment(new_source(), kept=StopsSecond()).execute(checkpoint_location=tmp_path).progress
    assert 0 < stopped.operators["in"].records_out < 30
    kept = KeptPlan()
    progress = environment(new_source(), kept=kept).execute(checkpoint_location=tmp_path).progress
    assert miscounts(kept.plan, progress) == []
    assert counts(progress) == counts(whole) == ALL
    assert [batch.batch_id for batch in progress.batches] == [*range(progress.batch_id + 1)]
    assert sum(batch.records_in for batch in progress.batches) == 30
    assert sum(batch.records_out for batch in progress.batches) == 30


def test_progress_is_stored_in_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of all micro-batches if they take long; otherwise that of the first and of the last one."""
    reported: list[JobProgress] = []

    class KeptProgress(KeptPlan):
        def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
            reported.append(progress)

    times = itertools.count(0, 1_000_000_000)
    monkeypatch.setattr(execution, "elapsed_ns", lambda: next(times))
    environment(kept=KeptProgress()).execute("sums", checkpoint_location=tmp_path / "slow")
    assert read_progress(tmp_path / "slow") == reported
    assert len(reported) > 2
    reported.clear()
    monkeypatch.setattr(execution, "elapsed_ns", lambda: 0)
    environment(kept=KeptProgress()).execute("sums", checkpoint_location=tmp_path)
    assert read_progress(tmp_path) == [reported[0], reported[-1]]
    job = read_job(tmp_path)
    assert job is not None
    assert job.name == "sums"
    assert job.plan["job_name"] == "sums"


def test_job_without_a_place_for_its_progress(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "dsv2").mkdir()
    (tmp_path / "dsv2/progress").write_text("in the way")
    assert counts(environment().execute(checkpoint_location=tmp_path).progress) == ALL
    assert "The job continues." in caplog.text


def test_micro_batches_have_durations_and_phases(monkeypatch: pytest.MonkeyPatch) -> None:
    time = itertools.count(0, 1_000_000)
    monkeypatch.setattr(phases.Phases.__init__, "__defaults__", (lambda: next(time),))
    monkeypatch.setattr(tasks, "elapsed_ns", lambda: next(time))
    *others, _ = job_context.JobContext.__init__.__defaults__ or ()
    monkeypatch.setattr(job_context.JobContext.__init__, "__defaults__", (*others, lambda: next(time)))
    progress = environment().execute().progress
    first, *_ = progress.batches
    assert list(first.phases) == ["planning", "source", "level 1", "sinks", "commit"]
    assert all(first.phases.values())
    assert sum(first.phases.values()) < first.duration_ms
    assert (first.batch_id, first.records_in, first.records_out) == (0, 10, 10)


def test_rates_are_per_second_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-batches of half a second begin every two seconds."""
    clock = ManualClock(1_000_000)

    def end(of_batch: object) -> tuple[float, dict[str, float]]:
        clock.advance(timedelta(seconds=2))
        return 500.0, {}

    monkeypatch.setattr(phases.Phases, "end", end)
    noted: list[tuple[float, float]] = []

    class Noting(KeptPlan):
        def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
            even = progress.operators["even"]
            noted.append((even.records_in_per_second, even.records_out_per_second))

    environment(kept=Noting(), clock=clock).execute()
    assert [came * seconds for (came, _), seconds in zip(noted, (0.5, 2.5, 4.5, 6.5), strict=True)] == pytest.approx(
        [10, 20, 30, 30]
    )
    assert [went * 2 for _, went in noted] == pytest.approx([came for came, _ in noted])


def test_history_has_the_last_hundred_micro_batches() -> None:
    source = DataGeneratorSource(int, count=130, records_per_batch=1)
    progress = environment(source, checks=False, parallelism=1).execute().progress
    assert [batch.batch_id for batch in progress.batches] == [*range(31, 131)]


class Slow(OneInputStreamProcessFunction[int, int]):
    """Takes a ms for each record, and 10 ms at the end."""

    clock = 0

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        Slow.clock += 1_000_000
        output.collect(record)

    def end_input(self, ctx: Any) -> None:
        Slow.clock += 10_000_000


@pytest.mark.parametrize("checks", [True, False])
def test_time_in_user_code_is_measured(monkeypatch: pytest.MonkeyPatch, checks: bool) -> None:
    fields = job_context.JobContext.__init__.__defaults__
    assert fields is not None
    monkeypatch.setattr(job_context.JobContext.__init__, "__defaults__", (*fields[:-1], lambda: Slow.clock))
    env = ExecutionEnvironment.get_instance(LocalRuntime(checks=checks, batches=[2]))
    numbers = env.from_collection(range(5)).process(Slow()).with_uid("slow")
    numbers.process(pass_on).with_uid("next").to_sink(CollectSink())
    operators = env.execute().progress.operators
    (slow,) = operators["slow"].subtasks
    assert slow.user_time_ms == 15
    (chained,) = operators["next"].subtasks
    assert chained.user_time_ms == 0, "it is part of the time of the operator before it"


def test_errors_and_dropped_late_records_are_counted() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    inverse = env.from_collection([1, 0, 2, 0]).map(lambda number: 1 / number).with_uid("inverse")
    inverse.with_error_policy(ErrorPolicy().skip(ZeroDivisionError)).to_sink(CollectSink())
    (subtask,) = env.execute().progress.operators["inverse"].subtasks
    assert (subtask.records_in, subtask.records_out, subtask.errors, subtask.late_records) == (4, 2, 2, 0)


def test_outputs_that_nothing_reads_count_nothing() -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime())
    env.from_collection([1, 2]).map(abs).with_uid("unread")
    env.from_collection([1]).to_sink(ForeachBatchSink(lambda records, batch_id: None)).with_uid("out")
    with pytest.warns(UnreadStreamWarning):
        operators = env.execute().progress.operators
    (subtask,) = operators["unread"].subtasks
    assert (subtask.records_in, subtask.outputs) == (2, (0,))
    assert operators["out"].records_in == 1


def test_duration_of_the_job_is_not_zero() -> None:
    result = environment().execute()
    assert result.duration >= timedelta(0)
    assert result.progress.batches[0].started_at_ms > 1_600_000_000_000
