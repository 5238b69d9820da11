"""The numbers of a job: every view shows the same, and what is unknown, slow or idle counts as it should."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dsv2 import CollectSink, ExecutionEnvironment, JobHandle, Trigger
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.jobs import JobListener, JobProgress
from dsv2.jobs.progress import (
    BatchProgress,
    ChannelProgress,
    InputProgress,
    OperatorProgress,
    SplitProgress,
    SubtaskProgress,
)
from dsv2.jobs.summary import History, JobSummary, summarize
from dsv2.jobs.summary.event_time import awaiting_event_time, event_time_of
from dsv2.jobs.summary.rates import Rates, spans_ms
from dsv2.local import LocalRuntime
from dsv2.plan_view.view import view_of
from dsv2.sources import DataGeneratorSource
from dsv2.testing import ManualClock, Stop, TestSource
from dsv2.views.dashboard.jobs import Record
from dsv2.views.dashboard.pages import operator_page, state_page
from dsv2.views.metrics.jobs import RunningJob
from dsv2.views.metrics.samples import samples_of
from dsv2.views.terminal.live_view import Summarizer
from dsv2.views.terminal.notebook import job_html
from dsv2.views.terminal.screen import job_text
from dsv2.views.terminal.texts import ShownJob, event_time_text
from dsv2.watermark.event_time import LONG_MAX, LONG_MIN, USE_PROCESSING_TIME
from tests.fake_jobs import hot_topics_plan
from tests.metered import PlayedJob

START = 1_700_000_000_000
IDLE = InputProgress(0, "a", 2, idle_count=1, ended_count=1)
ENDED = InputProgress(0, "a", 2, ended_count=2)
CLOCK = InputProgress(0, "a", 2, watermarks={USE_PROCESSING_TIME: True})
LATER = InputProgress(0, "a", 2, channels=(ChannelProgress(0, event_time=9), ChannelProgress(1)))


def subtasks(*given: SubtaskProgress) -> OperatorProgress:
    return OperatorProgress("a", "a", subtasks=given)


def generator() -> Any:
    return EventTimeExtension.new_watermark_generator_builder(abs).build_as_process_function()


def splits(*given: SplitProgress) -> OperatorProgress:
    return OperatorProgress("a", "a", splits=given)


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (subtasks(SubtaskProgress(0, event_time=5), SubtaskProgress(1, event_time=7)), (5, 7, 0, 2)),
        (subtasks(SubtaskProgress(0, event_time=5), SubtaskProgress(1)), (None, 5, 1, 2)),
        (subtasks(SubtaskProgress(0, event_time=5), SubtaskProgress(1, ended=True)), (5, 5, 0, 1)),
        (subtasks(SubtaskProgress(0, event_time=5), SubtaskProgress(1, ended=True, event_time=3)), (5, 5, 0, 1)),
        (subtasks(SubtaskProgress(0, event_time=5), SubtaskProgress(1, inputs=(IDLE,))), (5, 5, 0, 1)),
        (subtasks(SubtaskProgress(0, event_time=5, inputs=(IDLE,)), SubtaskProgress(1, inputs=(ENDED,))), (5, 5, 0, 1)),
        (subtasks(SubtaskProgress(0, event_time=5), SubtaskProgress(1, inputs=(CLOCK,))), (5, 5, 0, 1)),
        (subtasks(SubtaskProgress(0, inputs=(LATER,)), SubtaskProgress(1)), (None, None, 2, 2)),
        (subtasks(SubtaskProgress(0), SubtaskProgress(1)), None),
        (subtasks(SubtaskProgress(0, event_time=LONG_MAX, ended=True)), (LONG_MAX, LONG_MAX, 0, 1)),
        (subtasks(SubtaskProgress(0, event_time=LONG_MIN), SubtaskProgress(1, event_time=3)), (None, 3, 1, 2)),
        (subtasks(), None),
        (splits(SplitProgress("x", 0, event_time=5), SplitProgress("y", 0)), (None, 5, 1, 2)),
        (splits(SplitProgress("x", 0, event_time=5), SplitProgress("y", 0, idle=True)), (5, 5, 0, 1)),
        (splits(SplitProgress("x", 0), SplitProgress("y", 0)), None),
    ],
)
def test_event_time(operator: OperatorProgress, expected: tuple[int | None, ...] | None) -> None:
    found = event_time_of(operator)
    assert (found and (found.time, found.greatest, found.without, found.parts)) == expected


TWO = (replace(LATER, input=0), InputProgress(1, "b", 2, channels=(ChannelProgress(0),)))


@pytest.mark.parametrize(("awaiting", "has_time"), [((), False), (("a",), True)])
def test_input_without_any_event_time(awaiting: tuple[str, ...], has_time: bool) -> None:
    """It is wanting only if the operator acts as event time advances."""
    found = event_time_of(subtasks(SubtaskProgress(0, inputs=TWO)), awaiting)
    assert (found is not None) == has_time


def test_operators_that_await_event_time() -> None:
    env = ExecutionEnvironment.get_instance("local")
    timed = env.from_collection([1]).with_uid("timed").process(generator()).with_uid("times")
    untimed = env.from_collection([1]).with_uid("untimed").map(abs).with_uid("abs")
    for stream, uid in ((timed, "windows"), (untimed, "other windows")):
        windows = WindowStrategy.tumbling(timedelta(minutes=1))
        stream.key_by(abs).window(windows).reduce(max).with_uid(uid).to_sink(CollectSink()).with_uid(f"{uid} out")
    timed.map(abs).with_uid("map").to_sink(CollectSink()).with_uid("out")
    view = view_of(env.build_plan())
    assert awaiting_event_time(view) == {"windows"}


def of_metrics(job: PlayedJob, progress: JobProgress, name: str, *, per_subtask: bool = False) -> list[float]:
    handle: Any = job
    running = RunningJob(handle, job.plan, 0, progress)
    samples = samples_of(running, per_subtask=per_subtask, per_split=False)
    return [sample.value for sample in samples if sample.metric.name == name and isinstance(sample.value, float | int)]


def test_metrics_of_a_subtask_without_event_time() -> None:
    job = PlayedJob(History())  # type: ignore[arg-type]
    given = replace(subtasks(SubtaskProgress(0, inputs=(LATER,)), SubtaskProgress(1, event_time=9_000)), uid="join")
    progress = JobProgress(0, {"join": given})
    assert of_metrics(job, progress, "operator.event_time") == [LONG_MIN / 1000]
    assert of_metrics(job, progress, "operator.event_time", per_subtask=True) == [LONG_MIN / 1000, 9.0]
    assert of_metrics(job, progress, "operator.state_size") == [], "unknown"
    assert of_metrics(job, progress, "operator.largest_state_size") == []


@pytest.mark.parametrize(
    "parts",
    [
        (SubtaskProgress(0, ended=True, state_bytes=600), SubtaskProgress(1, event_time=5000, state_bytes=600)),
        (SubtaskProgress(0, state_bytes=600), SubtaskProgress(1, event_time=5000, state_bytes=600)),
        (SubtaskProgress(0, inputs=(IDLE,)), SubtaskProgress(1, event_time=5000)),
    ],
)
def test_views_show_the_same(parts: tuple[SubtaskProgress, ...]) -> None:
    job = PlayedJob(History())  # type: ignore[arg-type]
    join = OperatorProgress(
        "join", "Join", 70, 60, subtasks=parts, state_bytes=parts[0].state_bytes, records_in_per_second=12.5
    )
    progress = JobProgress(0, {"join": join}, (BatchProgress(0, 1_000, 100.0),))
    terminal = Summarizer(job.plan).summary(progress)
    record = Record()
    record.describe("shop", view_of(job.plan), ())
    record.add(progress)
    dashboard = record.snapshot().summary()
    assert [replace(one, name="") for one in terminal.operators] == [
        replace(one, name="") for one in dashboard.operators
    ]
    (one,) = terminal.operators
    time = LONG_MIN if one.event_time is None or one.event_time.time is None else one.event_time.time
    assert of_metrics(job, progress, "operator.event_time") == [time / 1000]
    assert of_metrics(job, progress, "operator.state_size") == ([] if one.state_bytes is None else [one.state_bytes])
    page = state_page(record.snapshot(), ())
    (line,) = page.operators.values()
    assert line["event_time"] == ("none yet" if time == LONG_MIN else "1970-01-01 00:00:05")
    assert (line["state_bytes"], line["in_rate"]) == (one.state_bytes, 12.5)
    shown = "\n".join(each.plain for each in job_text(ShownJob("shop", "running", 1.0, terminal), 200, 20))
    state = None if one.state_bytes is None else "1.2 kB"
    for text in (shown, job_html(ShownJob("shop", "running", 1.0, terminal))):
        assert ("1970-01-01 00:00:05" in text) == (time != LONG_MIN)
        assert "12" in text
    assert state is None or state in shown
    assert ("none" in event_time_text(terminal)) == (time == LONG_MIN)


def batches(*times: tuple[int, float]) -> list[BatchProgress]:
    return [BatchProgress(number, started, lasted, {}, 100) for number, (started, lasted) in enumerate(times)]


def test_time_of_micro_batches_includes_pauses() -> None:
    found = batches((0, 500), (2_000, 500), (2_500, 3_000), (4_000, 100))  # the clock was set back before the last one
    assert list(spans_ms(found)) == [500, 2_000, 3_000, 100]


def per_second(*times: tuple[int, float]) -> list[float]:
    rates, found = Rates(), []
    for batch in batches(*times):
        rates.add(batch, {"a": (100, 50)})
        came, went = rates.per_second()["a"]
        assert went == pytest.approx(came / 2)
        found.append(came)
    return found


def test_rates() -> None:
    assert per_second((0, 500), (1_000, 500), (2_000, 500)) == pytest.approx([200, 200 / 1.5, 300 / 2.5])
    assert per_second((0, 9), (60_000, 2_000), (120_000, 2_000))[2] == pytest.approx(100 / 60), "a minute apart"
    assert per_second(*((1_000 * number, 100.0) for number in range(100)))[-1] == pytest.approx(100), "ten seconds"
    assert Rates().per_second() == {}
    nothing = Rates()
    nothing.add(BatchProgress(0, 0, 0.0), {"a": (1, 1)})
    assert nothing.per_second() == {}


def test_rate_is_that_of_the_source_and_not_of_the_micro_batches() -> None:
    class Stops(JobListener):
        def on_progress(self, job: JobHandle, progress: JobProgress) -> None:
            if progress.batch_id > 12:
                job.stop()

    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(START)))
    env.add_job_listener(Stops())
    source = DataGeneratorSource(abs, records_per_second=200)
    env.from_source(source).with_uid("in").map(abs).with_uid("abs").to_sink(CollectSink()).with_uid("out")
    progress = env.execute("rate", trigger=Trigger.processing_time(timedelta(seconds=1))).progress
    assert progress.operators["abs"].records_in_per_second == pytest.approx(200, rel=0.1)


def summary_of(*operators: OperatorProgress) -> JobSummary:
    plan = view_of(hot_topics_plan())
    views = [replace(plan.operators[0 if one.splits else 1], uid=one.uid) for one in operators]
    view = replace(plan, operators=tuple(views), edges=())
    return summarize(view, JobProgress(0, {one.uid: one for one in operators}))


def test_slowest_operator_is_the_one_without_event_time() -> None:
    waits = replace(subtasks(SubtaskProgress(0, inputs=(LATER,))), uid="waits")
    found = summary_of(subtasks(SubtaskProgress(0, event_time=5)), waits)
    assert found.slowest is not None
    assert (found.slowest.uid, found.slowest.behind_ms, found.operators[0].behind_ms) == ("waits", None, 0)


def test_state_and_lag_are_unknown_unless_something_reports_them() -> None:
    assert (summary_of(subtasks(SubtaskProgress(0))).state_bytes, summary_of(subtasks()).lag) == (None, None)
    known = summary_of(subtasks(SubtaskProgress(0, state_bytes=0)), splits(SplitProgress("x", 0, lag=0)))
    assert summary_of(splits(SplitProgress("x", 0, lag=0), SplitProgress("y", 0))).lag == 0
    assert known.state_bytes is None or known.state_bytes == 0


def test_busy_share_of_a_view_that_skips_micro_batches() -> None:
    history = History()
    for number in (0, 10):
        one = OperatorProgress("a", "a", subtasks=(SubtaskProgress(0, user_time_ms=500.0 * (number + 1)),))
        times = tuple(BatchProgress(each, 1_000 * each, 1_000.0) for each in range(number + 1))
        history.add(JobProgress(number, {"a": one}, times))
    assert [moment.operators["a"].busy_ms for moment in history.moments] == [500.0, 5_000.0]
    assert [moment.duration_ms for moment in history.moments] == [1_000.0, 10_000.0]
    assert history.add(JobProgress(10, {}, times)) is None, "no news"


def test_window_behind_a_subtask_without_records() -> None:
    """The usual stuck watermark: a subtask of the generator gets no records with a timestamp, and is not idle."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(START)))
    env.set_parallelism(2)
    items: list[Any] = [START + number * 60_000 if number % 2 == 0 else -1 for number in range(40)]
    stream = env.from_source(TestSource([*items, Stop()])).with_uid("in").filter(lambda at: at > 0)
    generator = EventTimeExtension.new_watermark_generator_builder(lambda at: at).per_event_watermark()
    timed = stream.process(generator.build_as_process_function()).with_uid("generator")
    windows = timed.key_by(lambda at: 0).window(WindowStrategy.tumbling(timedelta(minutes=1))).reduce(max)
    windows.with_uid("windows").to_sink(sink := CollectSink[Any]())
    job = env.execute_async("stuck", trigger=Trigger.processing_time())
    job.await_termination()
    played = PlayedJob(History())  # type: ignore[arg-type]
    assert of_metrics(played, job.progress, "operator.event_time") == [LONG_MIN / 1000]
    slowest = Summarizer(job.plan).summary(job.progress).slowest
    assert slowest is not None
    assert slowest.name == "windows"
    assert sink.results == []


def test_page_of_a_subtask_of_unknown_state() -> None:
    (line,) = operator_page(subtasks(SubtaskProgress(0, inputs=(LATER,), watermarks={"day": 2**63}))).subtasks
    assert (line["state_bytes"], line["inputs"], line["watermarks"]) == (None, (), {})
