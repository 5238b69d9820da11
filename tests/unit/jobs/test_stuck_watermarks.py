"""Programs whose watermarks are stuck, each for another reason, and what the report says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from dsv2 import CollectSink, ExecutionEnvironment, Trigger, new_builder
from dsv2.errors import ConfigurationError
from dsv2.extension.event_time import (
    EventTimeExtension,
    OneInputEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
)
from dsv2.jobs.handle import JobHandle
from dsv2.jobs.progress import JobProgress
from dsv2.jobs.watermark_report import Cause, OperatorWatermark, report_watermarks
from dsv2.local import LocalRuntime
from dsv2.sources import Portion, RoundRobinSplitAssigner, WatermarkStrategy
from dsv2.streams import WaitForBroadcast
from dsv2.testing import ManualClock, Pause, Stop, TestSource
from dsv2.watermark import WatermarkDeclaration, WatermarkHandlingResult
from tests.spans import Item, Span, Spans
from tests.support import broadcast_side, one_input, two_inputs

START = 1_700_000_000_000  # 2023-11-14T22:13:20Z
W = new_builder("w").type_long().build()
BARRIER = new_builder("barrier").type_long().combine_wait_for_all_channels(True).aligned().build()
ALL = new_builder("all").type_long().combine_wait_for_all_channels(True).build()
IN_G = ("g", timedelta(seconds=1))
IDLENESS = "Call with_idleness on the builder of its watermarks, so that nothing waits for it."


class Numbers(Spans):
    """Spans whose lag is known. After ``stop`` records of a span, the source reads no more of it."""

    def __init__(self, ends: dict[str, int], stop: int, **options: Any) -> None:
        super().__init__(ends, assigner=RoundRobinSplitAssigner(), **options)
        self._stop = stop

    def advance(self, split: Span, limit: int | None, /) -> Portion[Span] | None:
        return super().advance(split, limit) if split.position < self._stop else None

    def lag(self, split: Span, /) -> int:
        return self.ends[split.name] - split.position


def time_of(item: Item) -> int:
    return START + 1_000 * item.number


def strategy(idle_seconds: int = 0) -> WatermarkStrategy[Item]:
    builder = EventTimeExtension.new_watermark_generator_builder(time_of)
    return builder.with_idleness(timedelta(seconds=idle_seconds)).build_as_watermark_strategy()


def emits(declaration: WatermarkDeclaration, at: Any = None) -> Any:
    """A function that emits the number of each record, or only of the record ``at``."""

    def process_record(record: Any, output: Any, ctx: Any) -> None:
        output.collect(record)
        if at is None or record == at:
            manager = ctx.non_partitioned_context.watermark_manager
            manager.emit_watermark(declaration.new_watermark(record.number))

    return one_input(declare_watermarks=lambda: [declaration], process_record=process_record)


class Join(TwoInputNonBroadcastEventTimeStreamProcessFunction[Any, Any, Any]):
    def process_record_from_first_input(self, record: Any, output: Any, ctx: Any) -> None: ...

    def process_record_from_second_input(self, record: Any, output: Any, ctx: Any) -> None: ...


class OneInput(OneInputEventTimeStreamProcessFunction[Any, Any]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class Program:
    """A job that reads what is available, and then waits."""

    def __init__(self, parallelism: int = 1, step_ms: int = 0) -> None:
        self.clock = ManualClock(START, step=timedelta(milliseconds=step_ms))
        self.env = ExecutionEnvironment.get_instance(LocalRuntime(clock=self.clock))
        self.env.set_parallelism(parallelism)

    def source(
        self, name: str, watermarks: Any = None, *, bounded: bool = False, limit: int = 99, stop: int = 99, **ends: int
    ) -> Any:
        numbers = Numbers(ends, stop, bounded=bounded, limit=limit)
        return self.env.from_source(numbers, watermarks=watermarks).with_uid(name)

    def end(self, stream: Any) -> None:
        stream.to_sink(CollectSink())

    def run(self, wait_seconds: int = 94) -> JobHandle:
        self.view = self.env.explain().view
        job = self.env.execute_async("stuck", trigger=Trigger.available_now())
        job.await_termination()
        self.clock.advance(timedelta(seconds=wait_seconds))
        return job

    def report(self, uid: str, identifier: str = "event-time", wait_seconds: int = 94) -> OperatorWatermark:
        return self.run(wait_seconds).watermarks(identifier, uid)[uid]


def through(found: OperatorWatermark) -> list[str]:
    return [step.operator for step in found.path]


def test_a_split_without_new_records() -> None:
    program = Program()
    orders = program.source("orders", strategy(), a=9)
    rates = program.source("rates", strategy(), b=3)
    program.end(orders.connect_and_process(rates, Join()).with_uid("join"))
    found = program.report("join")
    assert found.cause is Cause.QUIET_SPLIT
    assert (found.split, found.lasted_ms, found.value) == ("b", 94_000, START + 1_999)
    assert [(step.operator, step.subtask, step.input) for step in found.path] == [("join", 0, 1), ("rates", 0, None)]
    assert found.sentence == (
        "Event time of 'join' is 2023-11-14T22:13:21.999Z; input 2 ('rates') has not moved for 94 s; "
        "its split 'b' has had no new records for 94 s, and no idleness is configured."
    )
    assert found.advice == IDLENESS


def test_a_split_of_one_of_several_channels() -> None:
    program = Program(parallelism=2)
    program.end(program.source("in", strategy(600), a=9, b=3).shuffle().process(one_input()).with_uid("f"))
    found = program.report("f", wait_seconds=200)
    assert found.sentence == (
        "Event time of 'f', subtask 0, is 2023-11-14T22:13:21.999Z; channel 1 ('in', subtask 1) has not moved for "
        "3 min 20 s; its split 'b' has had no new records for 3 min 20 s, and is idle only after 10 min."
    )
    assert [channel.holds_back for channel in found.inputs[0].channels] == [False, True]
    assert found.values == (START + 1_999, START + 1_999)


def test_a_source_without_any_record() -> None:
    program = Program()
    program.end(program.source("empty", strategy()).process(one_input()).with_uid("f"))
    found = program.report("f")
    assert found.cause is Cause.NO_RECORDS
    assert found.sentence == (
        "'f' has no event time yet; all of its channels are idle; the source 'empty' has not produced any record."
    )


def test_a_function_that_has_never_emitted() -> None:
    program = Program(parallelism=2)
    emitter = program.source("in", a=3, b=9).process(emits(ALL, at=Item("a", 1))).with_uid("emitter")
    program.end(emitter.shuffle().process(one_input()).with_uid("f"))
    found = program.report("f", "all")
    assert found.cause is Cause.NOT_EMITTED
    assert found.sentence == (
        "'f', subtask 0, has not received the watermark 'all' yet; channel 1 ('emitter', subtask 1) has not sent it; "
        "it declares it, has received 9 records, and has not emitted it."
    )


def test_a_function_that_polls() -> None:
    program = Program()
    polls = one_input(on_watermark=lambda *args: WatermarkHandlingResult.POLL)
    polling = program.source("in", a=9).process(emits(W)).process(polls).with_uid("polls")
    program.end(polling.process(one_input()).with_uid("f"))
    found = program.report("f", "w")
    assert found.cause is Cause.POLLED
    assert found.sentence == (
        "'f' has not received the watermark 'w' yet; 'polls' has not sent it; it has received 8, returned POLL, and "
        "has not emitted it."
    )


def test_a_function_that_polls_event_time() -> None:
    program = Program()
    polls = one_input(on_watermark=lambda *args: WatermarkHandlingResult.POLL)
    polling = program.source("in", strategy(), a=9).process(polls).with_uid("polls")
    program.end(polling.process(one_input()).with_uid("f"))
    found = program.report("f")
    assert found.cause is Cause.POLLED
    assert found.sentence == (
        "'f' has no event time yet; 'polls' has not sent any; it has received 2023-11-14T22:13:27.999Z, returned POLL, "
        "and has not emitted it."
    )


def test_a_watermark_that_is_not_forwarded() -> None:
    ignored = new_builder("ignored").type_long().default_handling_strategy_ignore().build()
    program = Program()
    middle = program.source("in", a=9).process(emits(ignored)).process(one_input()).with_uid("middle")
    program.end(middle.process(one_input()).with_uid("f"))
    found = program.report("f", "ignored")
    assert found.cause is Cause.NOT_FORWARDED
    assert found.sentence == (
        "'f' has not received the watermark 'ignored' yet; 'middle' does not forward it, because of its handling "
        "strategy."
    )


def test_a_split_that_alignment_has_paused() -> None:
    program = Program(step_ms=1)
    fast = program.source("fast", strategy().with_watermark_alignment(*IN_G), limit=1, a=9)
    slow = program.source("slow", strategy().with_watermark_alignment(*IN_G), limit=1, b=1)
    program.end(fast.process(one_input()).with_uid("f"))
    program.end(slow)
    found = program.report("f")
    assert found.cause is Cause.PAUSED_SPLIT
    assert found.sentence == (
        "Event time of 'f' is 2023-11-14T22:13:21.999Z; 'fast' has not moved for 94 s; its split 'a' is paused by "
        "watermark alignment, because the source 'slow' is behind."
    )
    assert found.advice == "Find out what holds the source 'slow' back."


def test_a_split_with_a_backlog() -> None:
    program = Program()
    program.end(program.source("in", strategy(), a=9, stop=3, limit=1).process(one_input()).with_uid("f"))
    found = program.report("f")
    assert found.cause is Cause.BACKLOG
    assert found.sentence == (
        "Event time of 'f' is 2023-11-14T22:13:21.999Z; 'in' has not moved for 94 s; its split 'a' has a backlog of "
        "6 records."
    )


def test_an_aligned_watermark_waits_for_one_channel() -> None:
    program = Program(parallelism=2)
    emitter = program.source("in", a=3, b=9).process(emits(BARRIER, at=Item("b", 4))).with_uid("emitter")
    program.end(emitter.shuffle().process(one_input()).with_uid("f"))
    found = program.report("f", "barrier")
    assert found.cause is Cause.NOT_EMITTED
    assert found.sentence == (
        "'f', subtask 0, has not received the watermark 'barrier' yet; channel 0 ('emitter', subtask 0) has not sent "
        "it; it declares it, has received 3 records, and has not emitted it. The watermark is aligned: 2 records wait "
        "for it."
    )


def test_nothing_upstream_generates_event_time() -> None:
    program = Program()
    orders, raw = program.source("orders", strategy(), a=9), program.source("raw", b=3)
    program.end(orders.connect_and_process(raw, Join()).with_uid("join"))
    found = program.report("join")
    assert found.cause is Cause.NOT_DECLARED
    assert found.sentence == "'join' has no event time yet; nothing upstream of input 2 ('raw') generates event time."
    assert "watermarks=..." in found.advice


def test_the_main_side_waits_for_the_broadcast_side() -> None:
    program = Program()
    side = program.source("rules", b=3).process(emits(ALL, at=Item("b", 9))).with_uid("loader")
    main = program.source("orders", strategy(), a=9)
    waits = main.connect_and_process(side.broadcast(), broadcast_side(), wait_for_broadcast=WaitForBroadcast(ALL))
    program.end(waits.with_uid("enrich"))
    found = program.report("enrich")
    assert found.cause is Cause.BROADCAST_WAIT
    assert through(found) == ["enrich", "loader"]
    assert found.sentence == (
        "'enrich' has no event time yet; it waits for the broadcast side ('loader'): its watermark 'all' has not "
        "arrived. 9 records wait for it."
    )
    assert found.advice == "Find out what holds the watermark 'all' back."


def test_an_idle_channel_that_has_not_switched_to_the_wall_clock() -> None:
    program = Program(parallelism=2)
    by_clock = EventTimeExtension.USE_PROCESSING_TIME_WATERMARK_DECLARATION

    def switch(record: Any, output: Any, ctx: Any) -> None:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(by_clock.new_watermark(True))

    live = one_input(declare_watermarks=lambda: [by_clock], process_record=switch)
    emitter = program.source("in", a=3).process(live).with_uid("live")
    program.end(emitter.shuffle().process(one_input()).with_uid("f"))
    found = program.report("f")
    assert found.sentence == (
        "'f', subtask 0, has no event time yet; channel 1 ('live', subtask 1) is idle, and has not switched to the "
        "wall clock as the others have; split 'a' of 'in' has had no new records for 94 s."
    )


def test_a_union_waits_for_an_input_that_lacks_the_watermark() -> None:
    program = Program()
    with_it = program.source("one", a=9).process(emits(ALL)).with_uid("with")
    without = program.source("two", b=9).process(one_input()).with_uid("without")
    program.end(with_it.union(without).process(one_input()).with_uid("f"))
    found = program.report("f", "all")
    assert found.cause is Cause.NOT_DECLARED
    assert found.sentence == (
        "'f' has not received the watermark 'all' yet; 'Union' has not sent it; nothing upstream of input 2 of 'Union' "
        "('without') declares it."
    )


def test_a_generator_without_records() -> None:
    program = Program()
    generator = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
    program.end(program.source("in", a=3).process(generator).with_uid("gen").process(one_input()).with_uid("f"))
    found = program.report("f")
    assert found.cause is Cause.QUIET_SPLIT
    assert found.sentence == (
        "Event time of 'f' is 2023-11-14T22:13:21.999Z; 'gen' has not moved for 94 s; split 'a' of 'in' has had no new "
        "records for 94 s, and no idleness is configured."
    )


def test_all_input_has_ended() -> None:
    program = Program()
    program.end(program.source("in", strategy(), bounded=True, a=3).process(one_input()).with_uid("f"))
    found = program.report("f")
    assert found.cause is Cause.ENDED
    assert found.sentence == "The last event time of 'f' is 2023-11-14T22:13:21.999Z; its input has ended."


def test_one_input_that_has_ended_does_not_hold_the_other_back() -> None:
    program = Program()
    orders = program.source("orders", strategy(), a=9)
    rates = program.source("rates", strategy(), bounded=True, b=3)
    program.end(orders.connect_and_process(rates, Join()).with_uid("join"))
    found = program.report("join")
    assert (found.value, found.split) == (START + 7_999, "a")
    assert [one.ended for one in found.inputs] == [False, True]


def test_idle_channels() -> None:
    program = Program()
    generator = EventTimeExtension.new_watermark_generator_builder(time_of).with_idleness(timedelta(seconds=1))
    stream = program.source("in", a=3).process(generator.build_as_process_function()).with_uid("gen")
    program.end(stream.process(one_input()).with_uid("middle").shuffle().process(one_input()).with_uid("f"))
    program.end(program.env.from_source(TestSource([1, Pause(timedelta(seconds=5)), 2, Stop()])))
    found = program.report("f")
    assert found.cause is Cause.IDLE
    assert through(found) == ["f", "middle", "gen"]
    assert found.sentence == (
        "Event time of 'f' is 2023-11-14T22:13:21.999Z; all of its channels are idle; 'gen' is idle."
    )


def test_a_watermark_that_advances() -> None:
    program = Program(parallelism=2)
    program.end(program.source("in", strategy(), a=9, b=3).shuffle().process(one_input()).with_uid("f"))
    found = program.report("f", wait_seconds=5)
    assert found.cause is Cause.NOTHING
    assert found.sentence == (
        "Event time of 'f', subtask 0, is 2023-11-14T22:13:21.999Z; channel 1 ('in', subtask 1) is the furthest "
        "behind; it advances."
    )


def test_event_time_that_follows_the_wall_clock() -> None:
    no_watermark = EventTimeExtension.new_watermark_generator_builder(time_of).no_watermark()
    program = Program()
    source = program.source("in", no_watermark.build_as_watermark_strategy(), a=9)
    program.end(source.process(one_input()).with_uid("f"))
    found = program.report("f")
    assert (found.cause, found.value) == (Cause.NOTHING, None)
    assert found.sentence == "Event time of 'f' is the wall clock."


def test_a_flag_that_is_true() -> None:
    flag = new_builder("done").type_bool().build()

    def process_record(record: Any, output: Any, ctx: Any) -> None:
        ctx.non_partitioned_context.watermark_manager.emit_watermark(flag.new_watermark(True))

    program = Program()
    raises = one_input(declare_watermarks=lambda: [flag], process_record=process_record)
    program.end(program.source("in", a=9).process(raises).process(one_input()).with_uid("f"))
    found = program.report("f", "done")
    assert (found.cause, found.value) == (Cause.NOTHING, True)
    assert found.sentence == "The watermark 'done' of 'f' is True."


def test_all_operators_that_receive_it_are_reported() -> None:
    program = Program()
    first = program.source("in", strategy(), a=9).process(one_input()).with_uid("first")
    program.end(first.process(one_input()).with_uid("second"))
    program.end(program.source("other", b=3).process(one_input()).with_uid("without"))
    report = program.run().watermarks()
    assert [operator.uid for operator in report.operators] == ["first", "second"]
    assert (report.identifier, report.batch_id, report.now_ms) == ("event-time", 0, START + 94_000)
    assert through(report["second"]) == ["second", "first", "in"]
    assert str(report).splitlines() == [f"{one.sentence} {IDLENESS}" for one in report.operators]
    assert "split 'a' of 'in' has had no new records" in report["second"].sentence


def test_mistakes_in_the_arguments() -> None:
    program = Program()
    program.end(program.source("in", a=9).process(emits(W)).with_uid("f"))
    job = program.run()
    with pytest.raises(ConfigurationError, match=r"no watermark 'v'\. It has: event-time, w"):
        job.watermarks("v")
    with pytest.raises(ConfigurationError, match=r"no function 'g'\. It has: f"):
        job.watermarks("w", "g")
    assert str(job.watermarks()) == "No operator receives this watermark."


def test_a_value_of_one_is_not_true() -> None:
    program = Program()
    program.end(program.source("in", a=9).process(emits(W, at=Item("a", 1))).with_uid("emitter").process(one_input()))
    (found,) = program.run().watermarks("w").operators
    assert (found.cause, found.value) == (Cause.NOT_EMITTED, 1)
    assert found.sentence == (
        "The watermark 'w' of 'Process' is 1; 'emitter' has not moved for 94 s; it declares it, has received 9 "
        "records, and has not emitted a greater one."
    )


def test_the_input_on_which_it_arrives_has_ended() -> None:
    program = Program()
    with_it = program.source("one", bounded=True, a=9).process(emits(W)).with_uid("with")
    without = program.source("two", b=9)
    program.end(without.connect_and_process(with_it, two_inputs()).with_uid("f"))
    found = program.report("f", "w")
    assert (found.cause, found.value) == (Cause.ENDED, 8)
    assert found.sentence == "The last watermark 'w' of 'f' is 8; the input on which it arrives has ended."


def test_an_operator_with_one_input_and_no_event_time() -> None:
    program = Program()
    windowed = program.source("in", a=9).process(OneInput()).with_uid("f")
    program.end(windowed)
    found = program.report("f")
    assert found.sentence == "'f' has no event time yet; nothing upstream of 'f' generates event time."


def test_before_the_first_micro_batch_nothing_is_known() -> None:
    program = Program()
    program.end(program.source("in", strategy(), a=9).process(one_input()).with_uid("f"))
    view = program.env.explain().view
    (found,) = report_watermarks(view, JobProgress(-1, {}), START).operators
    assert (found.cause, found.inputs, found.path) == (Cause.UNKNOWN, (), ())
    assert found.sentence == "Nothing is known of event time in 'f'; it has not reported any progress yet."


def test_a_function_in_the_tasks_of_a_source() -> None:
    program = Program()
    program.end(program.source("in", strategy(), a=9).map(str).with_uid("text").shuffle().process(one_input()))
    job = program.run()
    assert [operator.name for operator in job.watermarks().operators] == ["Process"]
    found = job.watermarks(operator="text")["text"]
    assert found.sentence == (
        "Nothing is known of event time in 'text'; it runs in the tasks that read its source, which report no "
        "watermarks."
    )
    assert through(job.watermarks()["Process"])[1:] == ["text", "in"]


def test_a_source_whose_splits_are_unknown() -> None:
    program = Program()
    generator = EventTimeExtension.new_watermark_generator_builder(time_of).build_as_process_function()
    program.end(program.source("in", a=3).process(generator).with_uid("gen").process(one_input()).with_uid("f"))
    job = program.run()
    operators = {uid: replace(operator, splits=()) for uid, operator in job.progress.operators.items()}
    progress = replace(job.progress, operators=operators)
    (*_, found) = report_watermarks(program.view, progress, START + 94_000).operators
    assert found.cause is Cause.NOT_EMITTED
    assert found.sentence == (
        "Event time of 'f' is 2023-11-14T22:13:21.999Z; 'gen' has not moved for 94 s; it declares it, has received "
        "3 records, and has not emitted a greater one."
    )


def test_new_records_without_greater_timestamps() -> None:
    program = Program(step_ms=2_000)

    def not_after_two_seconds(item: Item) -> int:
        return min(time_of(item), START + 2_000)

    builder = EventTimeExtension.new_watermark_generator_builder(not_after_two_seconds)
    source = program.source("in", builder.build_as_watermark_strategy(), limit=1, a=9)
    program.end(source.process(one_input()).with_uid("f"))
    found = program.report("f", wait_seconds=0)
    assert (found.cause, found.split) == (Cause.NOT_EMITTED, "a")
    assert found.sentence.endswith("; the new records of its split 'a' have no greater timestamps.")


def test_addressed_watermark() -> None:
    """It passes other functions although it is declared to be ignored, and does not arrive where it is not needed."""
    declaration = new_builder("w").type_long().default_handling_strategy_ignore().deliver_to("addressed").build()
    per_key = new_builder("of key").type_long().per_key(int).build()

    def process_record(record: int, output: Any, ctx: Any) -> None:
        output.collect(record)
        ctx.non_partitioned_context.watermark_manager.emit_watermark(declaration.new_watermark(record))

    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(START)))
    function = one_input(declare_watermarks=lambda: [declaration, per_key], process_record=process_record)
    emitted = env.from_source(TestSource[int]([1, 2, Stop()])).process(function).with_uid("emits")
    passed = emitted.shuffle().map(int).with_uid("passes")
    passed.shuffle().map(int).with_uid("addressed").shuffle().map(int).with_uid("behind").to_sink(CollectSink())
    emitted.shuffle().map(int).with_uid("aside").to_sink(CollectSink())
    job = env.execute_async("addressed", trigger=Trigger.available_now())
    job.await_termination()
    found = job.watermarks("w")
    assert {one.uid: one.value for one in found.operators} == {"passes": 2, "addressed": 2}
    for uid in ("aside", "behind"):
        one = job.watermarks("w", operator=uid)[uid]
        assert (one.cause, one.advice) == (
            Cause.NOT_FORWARDED,
            "Address it to this operator as well: deliver_to(...) with its uid.",
        )
        assert one.sentence.endswith("it is addressed to other operators.")
    with pytest.raises(ConfigurationError, match="is about single keys, so no value of it holds a function back"):
        job.watermarks("of key")
