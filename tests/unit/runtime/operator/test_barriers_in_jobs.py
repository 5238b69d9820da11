"""Barriers in plans and jobs: what is refused, what explanations find, and what reports say of a barrier that waits."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from dsv2 import ExecutionEnvironment, JobError, Trigger, new_builder
from dsv2.cli.main import main
from dsv2.errors import PlanError, WatermarkDeclarationError
from dsv2.functions import OneInputStreamProcessFunction, TwoInputNonBroadcastStreamProcessFunction, on
from dsv2.graph import Plan
from dsv2.jobs.watermark_report import Cause
from dsv2.sinks import CollectSink
from dsv2.sources import CollectionSource
from dsv2.streams import WaitForBroadcast
from dsv2.testing import Crash, OneInputHarness, Stop, TestSource, TwoInputNonBroadcastHarness
from dsv2.views.dashboard.jobs import JobSnapshot, Status
from dsv2.views.dashboard.watermarks import watermark_page
from dsv2.views.explain import Severity, explain
from dsv2.watermark import LongWatermark, WatermarkDeclaration, WatermarkHandlingResult
from tests.spans import Item
from tests.support import broadcast_side, one_input, operator_named, pass_on, two_inputs
from tests.unit.jobs.test_stuck_watermarks import START, Program, emits, through
from tests.unit.views.explain.test_explain_findings import bounded, declares, endless, findings, viewed, written

DAY = new_builder("day").type_long().barrier().build()
DATE = new_builder("date").type_str().barrier(timeout=timedelta(minutes=2), max_records=5_000).build()
BOUNDED = new_builder("day").type_long().barrier(timeout=timedelta(minutes=1), when_exceeded="proceed").build()
OTHER_LIMIT = new_builder("day").type_long().barrier(timeout=timedelta(minutes=2), when_exceeded="proceed").build()
PEEK = WatermarkHandlingResult.PEEK


class Part(NamedTuple):
    year: int
    month: int


def environment() -> ExecutionEnvironment:
    return ExecutionEnvironment.get_instance("local")


def plan_of(env: ExecutionEnvironment) -> Plan:
    return env.build_plan()


def with_date(date: str) -> Any:
    """A function that emits a date as a barrier after each record."""

    def process_record(record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(DATE.new_watermark(f"{date}-{record.number:02}"))

    return one_input(declare_watermarks=lambda: [DATE], process_record=process_record)


class TestPlans:
    def test_barrier_may_pass_a_union(self) -> None:
        env = environment()
        written(bounded(env).process(declares(DAY)).union(bounded(env, "others").process(declares(DAY))))
        plan_of(env)

    def test_waiting_for_the_barrier_of_the_broadcast_side_is_refused(self) -> None:
        env = environment()
        rules = endless(env).process(declares(DAY)).broadcast()
        wait = WaitForBroadcast(until=DAY)
        written(bounded(env).connect_and_process(rules, broadcast_side(), wait_for_broadcast=wait))
        with pytest.raises(PlanError, match="waits for the barrier 'day' of its broadcast side, which itself waits"):
            plan_of(env)

    def test_handler_of_the_second_input_is_refused(self) -> None:
        class Both(TwoInputNonBroadcastStreamProcessFunction[int, int, int]):
            def process_record_from_first_input(self, record: int, output: Any, ctx: Any) -> None: ...

            def process_record_from_second_input(self, record: int, output: Any, ctx: Any) -> None: ...

            @on(DAY, input="second")
            def end_day(self, watermark: LongWatermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
                return PEEK

        env = environment()
        written(bounded(env).connect_and_process(endless(env).process(declares(DAY)), Both()))
        with pytest.raises(WatermarkDeclarationError, match=r"delivered on the first one. Pass input='first'"):
            plan_of(env)

    def test_the_same_barrier_with_other_limits_is_refused(self) -> None:
        env = environment()
        written(endless(env).process(declares(BOUNDED)).process(declares(OTHER_LIMIT)))
        with pytest.raises(PlanError, match="'day'"):
            plan_of(env)

    @pytest.mark.parametrize(("declaration", "expected"), [(DAY, False), (BOUNDED, True)])
    def test_functions_after_a_bounded_barrier_need_the_clock(
        self, declaration: WatermarkDeclaration, expected: bool
    ) -> None:
        env = environment()
        emitter = endless(env).process(declares(declaration)).with_uid("emitter")
        written(emitter.process(one_input()).with_uid("near").shuffle().process(one_input()).with_uid("far"))
        plan = plan_of(env)
        needs = {uid: plan.needs_clock(operator_named(plan, uid)) for uid in ("numbers", "emitter", "near", "far")}
        assert needs == {"numbers": False, "emitter": False, "near": expected, "far": expected}

    def test_explanation_shows_limits_and_where_channels_are_blocked(self) -> None:
        env = environment()
        env.set_parallelism(2)
        dated = bounded(env).process(declares(DATE)).with_uid("dated").process(one_input()).with_uid("near")
        written(dated.shuffle().process(one_input()).with_uid("far"))
        text = explain(plan_of(env)).render("text")
        assert (
            "  date  [str, barrier, waits for at most 0:02:00 and holds at most 5,000 records, then the job fails]\n"
            "    declared by dated\n"
        ) in text
        assert "    blocks channels in far\n" in text


class TestFindings:
    @pytest.mark.parametrize(("source", "severity"), [(endless, Severity.WARNING), (bounded, Severity.NOTE)])
    def test_barrier_that_an_input_never_sends(self, source: Any, severity: Severity) -> None:
        def build(env: ExecutionEnvironment) -> None:
            dated = endless(env).process(declares(DAY))
            written(dated.connect_and_process(source(env, "silent"), two_inputs(on_watermark_from_first_input=print)))

        (found,) = findings(build, "barrier-never-sent")
        assert found.severity is severity
        assert "nothing declares it on input 2" in found.message

    def test_barrier_that_every_input_sends(self) -> None:
        def build(env: ExecutionEnvironment) -> None:
            streams = (endless(env, name).process(declares(DAY)) for name in ("a", "b"))
            first, second = streams
            written(first.union(second).process(one_input(on_watermark=print)))

        assert not findings(build, "barrier-never-sent")
        assert not findings(build, "unhandled-barrier")

    def test_barrier_that_only_the_second_input_sends_is_handled_by_the_first(self) -> None:
        def build(env: ExecutionEnvironment, callback: str) -> None:
            dated = endless(env).process(declares(DAY))
            written(bounded(env).connect_and_process(dated, two_inputs(**{callback: print})))

        first, second = "on_watermark_from_first_input", "on_watermark_from_second_input"
        for code, expected in (("handler-never-called", (0, 1)), ("unhandled-barrier", (0, 1))):
            found = tuple(len(findings(partial(build, callback=name), code)) for name in (first, second))
            assert found == expected, code

    def test_barrier_without_a_handler(self) -> None:
        (found,) = findings(lambda env: written(endless(env).process(declares(DAY)).map(abs)), "unhandled-barrier")
        assert found.severity is Severity.WARNING
        assert "It blocks channels for nothing." in found.message


class TestFunctions:
    def test_two_inputs_are_called_once_and_forward_once(self) -> None:
        calls: list[Any] = []

        def on_barrier(watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
            calls.append(watermark)
            return PEEK

        both = two_inputs(
            declare_watermarks=lambda: [DAY],
            on_watermark_from_first_input=on_barrier,
            on_watermark_from_second_input=lambda watermark, output, ctx: pytest.fail("a barrier"),
        )
        harness = TwoInputNonBroadcastHarness(both, channels=2)
        for one in (harness.second_input, harness.first_input):
            for channel in (0, 1):
                assert not calls
                one.push_watermark(DAY.new_watermark(4), channel=channel)
        assert calls == harness.output.watermarks == [DAY.new_watermark(4)]

    def test_function_may_hold_a_barrier_back(self) -> None:
        polls = one_input(
            declare_watermarks=lambda: [DAY], on_watermark=lambda watermark, output, ctx: WatermarkHandlingResult.POLL
        )
        harness = OneInputHarness(polls)
        harness.input.push_watermark(DAY.new_watermark(1))
        assert not harness.output.watermarks

    def test_ids_that_are_emitted_and_forwarded_do_not_increase(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)  # the sink has a relative path

        def again(watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
            ctx.watermark_manager.emit_watermark(watermark)
            return PEEK

        env = environment()
        emitter = bounded(env).process(sends_each(DAY))
        relay = emitter.process(one_input(declare_watermarks=lambda: [DAY], on_watermark=again)).with_uid("relay")
        written(relay.process(one_input(on_watermark=lambda *args: PEEK)).with_uid("receiver"))
        with pytest.raises(JobError, match=r"uid 'receiver'.*, defined at .*id 0 after 0.*return POLL"):
            env.execute()

    def test_deadline_passes_without_input_and_after_a_restart(self) -> None:
        def on_barrier(watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
            output.collect(watermark.value)
            return PEEK

        function = one_input(on_watermark=on_barrier)
        harness = OneInputHarness(function, channels=2, declarations=[BOUNDED])
        harness.input.push_watermark(BOUNDED.new_watermark(4), channel=1)
        harness.advance_clock(timedelta(seconds=30))
        harness.restart()
        harness.advance_clock(timedelta(seconds=29))
        assert harness.output.records == []
        harness.advance_clock(timedelta(seconds=1))
        assert harness.output.records == [4]
        assert harness.progress.counters == {"barriers_without_all_channels": 1}

    def test_ids_of_a_data_class(self) -> None:
        declaration = new_builder("part").type_of(Part).barrier().build()
        harness = OneInputHarness(one_input(on_watermark=lambda *args: PEEK), channels=2, declarations=[declaration])
        for channel, part in ((0, Part(2026, 11)), (1, Part(2026, 9)), (1, Part(2026, 10)), (1, Part(2027, 1))):
            harness.input.push_watermark(declaration.new_watermark(part), channel=channel)
            harness.restart()
        values = [watermark.value for watermark in harness.output.watermarks]
        assert values == [Part(2026, 9), Part(2026, 10), Part(2026, 11)]

    def test_addressed_barrier_cuts_functions_that_pass_it_on(self) -> None:
        declaration = new_builder("day").type_long().barrier().deliver_to("target").build()
        received: list[int] = []

        def on_barrier(watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
            received.append(watermark.value)
            return PEEK

        env = environment()
        env.set_parallelism(2)
        emitter = env.from_collection([0, 1, 2]).process(sends_each(declaration))
        middle = one_input(on_watermark=lambda *args: pytest.fail("it is addressed to another function"))
        between = emitter.shuffle().process(middle).with_uid("between")
        target = between.process(one_input(on_watermark=on_barrier)).with_uid("target").with_parallelism(1)
        target.to_sink(CollectSink[int]())
        env.execute()
        assert received == [0, 1, 2]

    def test_failure_names_the_operator_and_its_place(self) -> None:
        harness = OneInputHarness(one_input(), channels=2, declarations=[DATE])
        harness.input.push_watermark(DATE.new_watermark("2026-11-22"), channel=1)
        with pytest.raises(JobError) as caught:
            harness.advance_clock(timedelta(minutes=2))
        text = str(caught.value)
        assert text.startswith("Process (uid 'Scripted-")
        assert f"defined at {__file__}:" in text
        assert "the barrier 'date' has waited for 0:02:00 (timeout). It has not received the id '2026-11-22'" in text


def sends_each(declaration: WatermarkDeclaration) -> Any:
    """A function that emits each number as a barrier."""

    def process_record(record: int, output: Any, ctx: Any) -> None:
        output.collect(record)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(declaration.new_watermark(record))

    return one_input(declare_watermarks=lambda: [declaration], process_record=process_record)


class TestReports:
    @staticmethod
    def program() -> Program:
        """One split of each source. That of the second reader of 'left' has no barrier at 7."""
        program = Program(parallelism=2)
        left = program.source("left", a=9, b=3).process(emits(DAY, at=Item("a", 7))).with_uid("emitter")
        right = program.source("right", c=9).process(emits(DAY, at=Item("c", 7))).with_uid("other")
        both = two_inputs(on_watermark_from_first_input=lambda *args: PEEK)
        program.end(left.shuffle().connect_and_process(right.shuffle(), both).with_uid("both"))
        return program

    def test_missing_channel_is_named_with_its_split(self) -> None:
        found = self.program().report("both", "day")
        assert found.sentence == (
            "'both', subtask 0, has not received the barrier 'day' yet; input 1, channel 1 ('emitter', subtask 1) has "
            "not sent 7 or a later one, for which 2 channels have waited for 94 s; split 'b' of 'left' has had no new "
            "records for 94 s. 2 records wait for it."
        )
        assert (found.cause, found.split, found.lasted_ms) == (Cause.QUIET_SPLIT, "b", 94_000)
        assert through(found) == ["both", "emitter", "left"]

    def test_dashboard_shows_what_each_channel_holds(self) -> None:
        program = self.program()
        job = program.run()
        snapshot = JobSnapshot(0, "stuck", Status.FINISHED, program.view, job.progress, updated_at_ms=START)
        (line,) = watermark_page(snapshot, "day").operators
        rows = {(row["input"], row["channel"]): row for row in line["channels"]}
        held = {place: (row["records_held"], row["blocked_since_ms"]) for place, row in rows.items()}
        assert held[0, 0][1] == held[1, 0][1] == START
        assert held[0, 1] == (0, None)

    def test_command_line_shows_what_each_channel_holds(self, tmp_path: Any, capsys: Any) -> None:
        program = self.program()
        program.env.execute("stuck", checkpoint_location=tmp_path, trigger=Trigger.available_now())
        assert main(["watermarks", str(tmp_path), "day", "--operator", "both"]) == 0
        lines = capsys.readouterr().out.splitlines()
        (header,) = (line for line in lines if "blocked for" in line)
        assert header.endswith("records held")
        rows = [line for line in lines if line.endswith((" 0", " 1", " 2"))]
        assert [row.split()[-1] for row in rows] == ["1", "0", "1", "0"]

    def test_source_that_sends_no_barrier(self) -> None:
        program = Program()
        dated = program.source("dated", a=9).process(with_date("2026-11")).with_uid("dates")
        silent = program.source("silent", b=9).with_uid("silent")
        program.end(dated.union(silent).process(one_input(on_watermark=lambda *args: PEEK)).with_uid("f"))
        found = program.report("f", "date", wait_seconds=10)
        assert found.cause is Cause.NOT_DECLARED
        assert "nothing upstream of input 2" in found.sentence

    def test_barrier_that_nothing_waits_for(self) -> None:
        program = Program()
        dated = program.source("dated", a=9).process(with_date("2026-11")).with_uid("dates")
        program.end(dated.process(one_input(on_watermark=lambda *args: PEEK)).with_uid("f"))
        found = program.report("f", "date", wait_seconds=10)
        assert found.value == "2026-11-08"
        assert found.sentence.startswith("The barrier 'date' of 'f' is 2026-11-08; ")


def test_view_of_another_watermark_is_no_barrier() -> None:
    plain = new_builder("plain").type_long().build()
    view = viewed(lambda env: written(endless(env).process(declares(plain))))
    assert [one.barrier for one in view.watermarks] == [None]


class Days(OneInputStreamProcessFunction[tuple[int, int], tuple[int, int]]):
    """Forwards pairs of a day and an amount, and ends each day."""

    def __init__(self) -> None:
        self.day = 0

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [DAY]

    def process_record(self, record: tuple[int, int], output: Any, ctx: Any) -> None:
        if record[0] > self.day:
            self.day = record[0]
            ctx.non_partitioned_context.watermark_manager.emit_watermark(DAY.new_watermark(self.day - 1))
        output.collect(record)

    def end_input(self, ctx: Any) -> None:
        ctx.watermark_manager.emit_watermark(DAY.new_watermark(self.day))


class Sums(OneInputStreamProcessFunction[tuple[int, int], tuple[int, int]]):
    """Emits the sum of each day."""

    def __init__(self) -> None:
        self.sum = 0

    def process_record(self, record: tuple[int, int], output: Any, ctx: Any) -> None:
        self.sum += record[1]

    @on(DAY)
    def end_day(self, watermark: LongWatermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect((watermark.value, self.sum))
        self.sum = 0
        return PEEK


FAST = [(day, 10 ** (day % 4)) for day in range(12)]
SLOW = [(day, 5 * 10 ** (day % 4)) for day in (0, 0, 3, 4, 4, 9)]


@pytest.mark.parametrize("interruption", [Stop(), Crash()])
@pytest.mark.parametrize("at", range(1, 12, 5))
@pytest.mark.parametrize("parallelism", [(1, 1), (2, 3)])
def test_restart_is_invisible(interruption: Any, at: int, parallelism: tuple[int, int], tmp_path: Path) -> None:
    """At any record of the fast source, while it is blocked as well. The parallelism may change."""
    results = []
    for subtasks in parallelism:
        env = environment()
        fast = env.from_source(TestSource([*FAST[:at], interruption, *FAST[at:]], records_per_batch=1)).with_uid("fast")
        slow = env.from_source(CollectionSource(SLOW, records_per_batch=1)).with_uid("slow")
        days = [stream.process(Days()).with_uid(f"days {n}") for n, stream in enumerate((fast, slow))]
        between = days[0].union(days[1]).with_uid("union").shuffle().process(one_input(process_record=pass_on))
        sink = CollectSink[tuple[int, int]]()
        between.with_uid("between").with_parallelism(subtasks).process(Sums()).with_uid("sums").to_sink(sink)
        job = env.execute_async("days", checkpoint_location=tmp_path, trigger=Trigger.available_now())
        with suppress(JobError):
            job.await_termination()
        results += sink.results
    sums = {day: sum(amount for other, amount in (*FAST, *SLOW) if other == day) for day in range(12)}
    assert results == list(sums.items())
