"""The live view of a job: numbers, lines of text, and lines of a terminal of any size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2.graph import Plan
from dsv2.jobs.progress import BatchProgress, JobProgress, OperatorProgress, SplitProgress, SubtaskProgress
from dsv2.jobs.summary import JobSummary
from dsv2.views.terminal.live_view import Summarizer
from dsv2.views.terminal.notebook import job_html
from dsv2.views.terminal.screen import job_text
from dsv2.views.terminal.texts import (
    ShownJob,
    bytes_text,
    can_show_blocks,
    count_text,
    duration_text,
    line_of,
    rate_text,
    sparkline,
    time_text,
    value_text,
)
from dsv2.watermark.event_time import LONG_MAX
from tests.fake_jobs import NEWEST, NOTHING, hot_topics_plan, hot_topics_progress, steps_plan, steps_progress

HOT_TOPICS, STEPS = hot_topics_plan(), steps_plan()


def summary(plan: Plan, *progress: JobProgress) -> JobSummary:
    """The last summary of a job that makes progress."""
    summarizer = Summarizer(plan)
    return [summarizer.summary(each) for each in progress][-1]


def shown(plan: Plan, *progress: JobProgress, state: str = "running", note: str | None = None) -> ShownJob:
    return ShownJob(plan.job_name, state, 42_300, summary(plan, *progress), note)


def text(job: ShownJob, columns: int, lines: int = 24, *, blocks: bool = True) -> str:
    return "\n".join(line.plain.rstrip() for line in job_text(job, columns, lines, blocks=blocks))


WIDE = """\
── hot topics  ● running  42 s ─────────────────────────────────────────────────────────────────────────────────────────
▆████▇▇▇▆ 8,000/s   read 213,084   lag 1,200,000   micro-batch 8 in 2.9 s   held 12   errors 3
newest-posting-time 2013-03-04 20:26:37   slowest detector
operator        in      out  per second         busy  newest-posting-time  held  errors    state  keys
tweets              213,084       8,000                                       0       0
extractor  213,084  213,084       8,231  ▌        9%                          0       0
detector   213,084    2,130       8,231  ███▉    64%  2013-03-04 20:26:37    12       3  48.0 MB   104
events       2,130                    0                                       0       0"""

NARROW = """\
-- hot topics  * running  42 s -------------------
8,000/s   read 213,084   lag 1,200,000
micro-batch 8 in 2.9 s   held 12   errors 3
newest-posting-time 2013-03-04 20:26:37
slowest detector
operator        in  newest-posting-time  errors
tweets                                        0
extractor  213,084                            0
detector   213,084  2013-03-04 20:26:37       3
events       2,130                            0"""


def test_view_of_a_wide_terminal() -> None:
    assert text(shown(HOT_TOPICS, hot_topics_progress(0), hot_topics_progress(8)), 120) == WIDE


def test_timers_have_a_column_if_there_are_any() -> None:
    progress = hot_topics_progress(8)
    detector = progress.operators["detector"]
    subtasks = tuple(replace(subtask, timers=1_200 + subtask.subtask) for subtask in detector.subtasks)
    operators = {**progress.operators, "detector": replace(detector, subtasks=subtasks)}
    header, *_, line, _ = text(shown(HOT_TOPICS, replace(progress, operators=operators)), 140).splitlines()[3:]
    assert header.endswith("keys  timers")
    assert line.split()[-1] == f"{sum(subtask.timers for subtask in subtasks):,}"


def test_narrow_terminal_without_blocks() -> None:
    job = shown(HOT_TOPICS, hot_topics_progress(0), hot_topics_progress(8))
    assert text(job, 50, blocks=False) == NARROW


def test_few_columns_and_lines_show_the_most_important() -> None:
    job = shown(HOT_TOPICS, hot_topics_progress())
    assert text(job, 30, 3).splitlines() == [
        "── hot topics  ● running  42 s",
        "▆████▇▇▇▆ 8,000/s",
        "read 213,084   lag 1,200,000",
    ]


def test_operators_that_do_not_fit_are_those_with_the_least_work() -> None:
    job = shown(STEPS, steps_progress(batch_id=0), steps_progress())
    lines = text(job, 100, 10).splitlines()
    assert len(lines) == 10
    assert lines[-1] == "and 25 other operators"
    names = [line[:23].strip() for line in lines[4:-1]]
    assert names == [f"step {number} of the pipeline" for number in (4, 8, 12, 16, 29)]
    everything = text(job, 100, 60)
    assert everything.count("of the pipeline") == 31
    assert "event time 2013-03-04 12:26:11, 29 s behind   slowest step 4 of the pipeline" in everything


def test_job_that_has_read_nothing() -> None:
    assert text(shown(HOT_TOPICS, NOTHING), 60).splitlines()[1:] == ["no micro-batch is complete yet"]
    empty = JobProgress(0, {"detector": OperatorProgress("detector", "KeyedProcess")}, (BatchProgress(0, 0, 0.0),))
    lines = text(shown(HOT_TOPICS, empty), 80).splitlines()
    assert lines[1:] == ["0/s   read 0   micro-batch 0 in 0 ms   held 0   errors 0", "operator", "detector"]


def test_note_is_the_last_line() -> None:
    job = shown(HOT_TOPICS, hot_topics_progress(), state="stopping", note="Stopping ...")
    assert text(job, 80, 6).splitlines()[-1] == "Stopping ..."
    assert text(job, 80, 24).splitlines()[-1] == "Stopping ..."


@given(st.integers(1, 200), st.integers(1, 60), st.booleans(), st.sampled_from([HOT_TOPICS, STEPS]), st.booleans())
def test_view_has_the_size_of_the_terminal(columns: int, lines: int, blocks: bool, plan: Plan, noted: bool) -> None:
    progress = hot_topics_progress() if plan is HOT_TOPICS else steps_progress()
    rendered = job_text(shown(plan, progress, note="x" * 90 if noted else None), columns, lines, blocks=blocks)
    assert 0 < len(rendered) <= lines
    assert all(line.cell_len <= columns for line in rendered)
    assert all("\n" not in line.plain for line in rendered)


def test_wide_characters_and_markup_in_names() -> None:
    job = replace(shown(HOT_TOPICS, hot_topics_progress()), name="[red]重要な仕事[/red] <b>")
    for columns in (20, 21, 80):
        assert all(line.cell_len <= columns for line in job_text(job, columns, 20))
    assert "[red]重要な仕事[/red]" in text(job, 80)
    assert "重要な仕事[/red] &lt;b&gt;" in job_html(job)


def test_html_escapes_and_shows_the_operators() -> None:
    html = job_html(shown(HOT_TOPICS, hot_topics_progress(0), hot_topics_progress(8)))
    assert "<td>detector</td><td>213,084</td><td>2,130</td>" in html
    assert "<th>late</th>" not in html


def test_what_is_unknown_is_left_out() -> None:
    old = JobProgress(3, {"extractor": OperatorProgress("extractor", "Process", 70, 70)})
    job = shown(HOT_TOPICS, old)
    assert text(job, 80).splitlines()[1] == "read 0   micro-batch 3   held 0   errors 0"
    assert line_of("hot topics", job.summary) == "hot topics: micro-batch 3, 0 records read"
    html = job_html(job)
    assert not [fact for fact in ("rate", "lag", "slowest") if f">{fact}</span>" in html]
    assert "<table>" in html
    assert "<table>" not in job_html(replace(job, summary=replace(job.summary, operators=())))


def test_event_time_is_shown_in_every_form() -> None:
    job = shown(STEPS, steps_progress(batch_id=0), steps_progress())
    expected = "event time 2013-03-04 12:26:11, 29 s behind"
    assert expected in line_of(job.name, job.summary)
    assert expected.partition(" 2013")[2].strip() in job_html(job)
    missing = OperatorProgress(
        "detector", "", subtasks=(SubtaskProgress(0, event_time=NEWEST), SubtaskProgress(1)), records_in=1
    )
    found = summary(HOT_TOPICS, JobProgress(1, {"detector": missing}))
    assert "event time none in 1 of 2 of detector" in line_of("hot topics", found)


@pytest.mark.parametrize(("encoding", "can"), [("utf-8", True), ("ascii", False), (None, False), ("unknown", False)])
def test_blocks_need_an_encoding_that_has_them(encoding: str | None, can: bool) -> None:
    assert can_show_blocks(encoding) == can


@pytest.mark.parametrize(("values", "curve"), [([], ""), ([0.0, 0.0], "▁▁"), ([0.0, 1.0, 2.0, 9.0], "▁▂█")])
def test_curve_of_the_last_values(values: list[float], curve: str) -> None:
    assert sparkline(values, 3) == curve


def test_line_of_text() -> None:
    assert line_of("hot topics", summary(HOT_TOPICS, hot_topics_progress(0), hot_topics_progress(8))) == (
        "hot topics: micro-batch 8 in 2.9 s, 213,084 records read (8,000/s), lag 1,200,000, held 12, errors 3, "
        "newest-posting-time 2013-03-04 20:26:37, slowest detector"
    )
    assert line_of("hot topics", summary(HOT_TOPICS, NOTHING)) == "hot topics: no micro-batch is complete yet"


class TestSummary:
    def test_without_new_numbers_it_shows_what_there_is(self) -> None:
        old = JobProgress(3, {"extractor": OperatorProgress("extractor", "Process", 70, 70)})
        found = summary(HOT_TOPICS, old)
        assert (found.operators[0].records_in, found.batch, found.lag, found.busiest) == (70, None, None, None)

    def test_time_of_chained_operators_counts_once(self) -> None:
        def progress(batch_id: int) -> JobProgress:
            times = {"step 0 of the pipeline": 900.0, "step 1 of the pipeline": 100.0}
            return JobProgress(
                batch_id,
                {
                    uid: OperatorProgress(uid, "Map", subtasks=(SubtaskProgress(0, user_time_ms=time * batch_id),))
                    for uid, time in times.items()
                },
                tuple(BatchProgress(number, 1000 * number, 1000.0) for number in range(batch_id + 1)),
            )

        plan = steps_plan(2)  # they have different parallelism, so they are not chained
        assert [one.busy for one in summary(plan, progress(0), progress(2)).operators] == [0.6, 0.2 / 3]
        edge = plan.edges[1]
        heads = {**plan.chain_heads, edge.target: plan.chain_heads[edge.source]}
        plan.__dict__["chain_heads"] = heads
        assert [one.busy for one in summary(plan, progress(0), progress(2)).operators] == [1.6 / 3, 0.2 / 3]

    def test_chained_operator_without_a_report(self) -> None:
        plan = steps_plan(2)
        edge = plan.edges[1]
        plan.__dict__["chain_heads"] = {**plan.chain_heads, edge.target: plan.chain_heads[edge.source]}
        head = OperatorProgress("step 0 of the pipeline", "Map", subtasks=(SubtaskProgress(0, user_time_ms=500.0),))
        found = JobProgress(0, {head.uid: head}, (BatchProgress(0, 0, 1000.0),))
        assert [one.busy for one in summary(plan, found).operators if one.busy is not None] == [0.5]

    def test_restarted_job_is_not_busy_with_what_it_did_before(self) -> None:
        first = steps_progress(batch_id=8)
        restarted = replace(first, batches=first.batches[-1:])
        assert {one.busy for one in summary(STEPS, restarted).operators} == {None}

    def test_curve_is_per_second_of_the_clock(self) -> None:
        batches = (
            BatchProgress(0, 0, 1000.0, {}, 5_000),
            BatchProgress(1, 20_000, 1000.0, {}, 100),
            BatchProgress(2, 22_000, 2000.0, {}, 300),
        )
        found = summary(HOT_TOPICS, JobProgress(2, {}, batches))
        assert list(found.rates) == [5_000.0, 5.0, 100.0]

    def test_event_time_is_the_lowest_that_holds_the_operator_back(self) -> None:
        def of(found: OperatorProgress) -> tuple[int | None, int, int | None]:
            other = OperatorProgress("extractor", "Process", subtasks=(SubtaskProgress(0, event_time=NEWEST + 9_000),))
            progress = JobProgress(1, {"detector": found, "extractor": other})
            operator = summary(HOT_TOPICS, progress).operators[1]
            assert operator.event_time is not None
            return operator.event_time.time, operator.event_time.without, operator.behind_ms

        def subtasks(*times: int | None) -> OperatorProgress:
            parts = tuple(SubtaskProgress(number, event_time=time) for number, time in enumerate(times))
            return OperatorProgress("detector", "KeyedProcess", subtasks=parts)

        assert of(subtasks(NEWEST + 5_000, NEWEST)) == (NEWEST, 0, 9_000)
        assert of(subtasks(NEWEST, None)) == (None, 1, None)
        assert of(subtasks(LONG_MAX, LONG_MAX)) == (LONG_MAX, 0, None)

    def test_idle_and_ended_splits_do_not_hold_the_source_back(self) -> None:
        splits = (
            SplitProgress("a", 0, event_time=NEWEST, idle=True),
            SplitProgress("b", 0, event_time=NEWEST + 1, ended=True),
            SplitProgress("c", 0, event_time=NEWEST + 2, lag=5),
            SplitProgress("d", 0, event_time=NEWEST + 3),
        )
        found = summary(HOT_TOPICS, JobProgress(1, {"tweets": OperatorProgress("tweets", "", splits=splits)}))
        assert found.lag == 5
        assert found.operators[0].event_time is not None
        assert found.operators[0].event_time.time == NEWEST + 2


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (count_text(9_999_999), "9,999,999"), (count_text(12_345_678), "12.3 M"), (count_text(10**21), "1000000.0 P"),
        (rate_text(0.0), "0/s"), (rate_text(0.42), "0.4/s"), (rate_text(9.96), "10/s"),
        (rate_text(12_345.6), "12,346/s"), (bytes_text(999), "999 B"), (bytes_text(48_000_123), "48.0 MB"),
        (duration_text(-1), "0 ms"), (duration_text(999.4), "999 ms"), (duration_text(3_210), "3.2 s"),
        (duration_text(59_999), "59 s"), (duration_text(192_000), "3:12 min"), (duration_text(7_392_000), "2:03:12 h"),
        (duration_text(274_000_000), "3 d 4 h"), (time_text(None), "none"), (time_text(-(2**63)), "none"),
        (time_text(LONG_MAX), "end"), (time_text(0), "1970-01-01 00:00:00"),
        (time_text(10**17), "100,000,000,000,000,000"),
        (value_text(NEWEST), "2013-03-04 12:26:40"), (value_text(41), "41"), (value_text(-5_000_000), "-5,000,000"),
        (value_text(True), "true"), (value_text(None), "none"),
    ],
)  # fmt: skip
def test_texts(found: str, expected: str) -> None:
    assert found == expected
