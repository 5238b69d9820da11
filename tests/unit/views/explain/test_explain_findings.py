"""Findings of explanations: programs that must have one, and similar ones that must not."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dsv2 import ExecutionEnvironment, OutputTag, new_builder
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.extension.join import JoinMode, join
from dsv2.extension.window import CountTrigger, OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.extension.window.process_functions import reduced
from dsv2.functions import OneInputStreamProcessFunction, no_output_until_end_of_input
from dsv2.plan_view.view import view_of
from dsv2.sinks import CollectSink, FileSink, ParallelSink
from dsv2.sources import DataGeneratorSource
from dsv2.state import StateDeclarations, StateTtl
from dsv2.streams import WaitForBroadcast
from dsv2.views.explain import Finding, PlanView, Severity
from tests import ROOT
from tests.spans import Spans
from tests.support import broadcast_side, one_input, two_inputs, two_output

Build = Callable[[ExecutionEnvironment], object]

MINUTE = timedelta(minutes=1)
READY = new_builder("ready").type_long().build()
ALL_READY = new_builder("ready").type_long().combine_wait_for_all_channels(True).build()
BOTH_READY = new_builder("ready").type_long().combine_wait_for_all_channels(True).combine_across_inputs(True).build()
LOCAL_READY = new_builder("ready").type_long().default_handling_strategy_ignore().build()
TWO_VOTES = new_builder("votes").type_bool().combine_function_at_least(2).build()
SIDE = OutputTag("side", int)


def viewed(build: Build) -> PlanView:
    env = ExecutionEnvironment.get_instance("local")
    build(env)
    return view_of(env.build_plan())


def findings(build: Build, code: str) -> list[Finding]:
    return [finding for finding in viewed(build).findings if finding.code == code]


def endless(env: ExecutionEnvironment, name: str = "numbers") -> Any:
    return env.from_source(DataGeneratorSource(int), name).with_uid(name)


def bounded(env: ExecutionEnvironment, name: str = "few") -> Any:
    return env.from_source(DataGeneratorSource(int, count=3), name).with_uid(name)


def written(stream: Any) -> None:
    stream.to_sink(FileSink("out", schema="n int")).with_uid("sink")


def declares(declaration: Any = READY) -> Any:
    return one_input(declare_watermarks=lambda: [declaration])


def handles() -> Any:
    return one_input(on_watermark=lambda *args: None)


def times(no_watermark: bool = False) -> Any:
    builder = EventTimeExtension.new_watermark_generator_builder(lambda number: number)
    return (builder.no_watermark() if no_watermark else builder).build_as_process_function()


class Waits(OneInputEventTimeStreamProcessFunction[Any, int]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class Remembers(OneInputStreamProcessFunction[Any, int]):
    def __init__(self, time: Any) -> None:
        self.seen = StateDeclarations.value_state("seen", int, ttl=StateTtl(MINUTE, time_characteristic=time))

    def uses_states(self) -> Any:
        return [self.seen]

    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


@no_output_until_end_of_input
class AtEnd(OneInputStreamProcessFunction[Any, int]):
    def process_record(self, record: Any, output: Any, ctx: Any) -> None: ...


class InWindow(OneInputWindowStreamProcessFunction[Any, int]):
    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None: ...


class ToNothing(ParallelSink[Any]):
    def write(self, batch: Any) -> None: ...


def windowed(strategy: WindowStrategy, generator: Any = None) -> Build:
    def build(env: ExecutionEnvironment) -> None:
        numbers = endless(env) if generator is None else endless(env).process(generator)
        written(numbers.key_by(str).window(strategy).process(InWindow()).with_uid("windows"))

    return build


def joined(left: Callable[[Any], Any], right: Callable[[Any], Any], *, ends: bool = False) -> Build:
    """An interval join of two streams, of which the second may end."""

    def build(env: ExecutionEnvironment) -> None:
        others = right((bounded if ends else endless)(env, "others"))
        function: Any = join(lambda one, other, output, ctx: None, JoinMode.interval(-MINUTE, MINUTE))
        keyed = left(endless(env)).key_by(str).connect_and_process(others.key_by(str), function)
        written(keyed.with_uid("join"))

    return build


def with_rules(env: ExecutionEnvironment, rules: Any, wait: WaitForBroadcast | None = None) -> Any:
    side: Any = broadcast_side()
    return endless(env).process(times()).connect_and_process(rules.broadcast(), side, wait_for_broadcast=wait)


def united(declaration: Any, first: Any, second: Any, *, ends: bool = False, last: Any = None) -> Build:
    """A union of two functions, read by a third. The second one may end."""

    def build(env: ExecutionEnvironment) -> None:
        one = endless(env).process(first(declaration)).with_uid("one")
        other = (bounded if ends else endless)(env, "others").process(second(declaration)).with_uid("other")
        written(one.union(other).with_uid("union").process(last or handles()).with_uid("last"))

    return build


def connected(declaration: Any) -> Build:
    def build(env: ExecutionEnvironment) -> None:
        one, other = endless(env).process(declares(declaration)), endless(env, "others").process(one_input())
        both: Any = one.connect_and_process(other, two_inputs()).with_uid("both")
        written(both.process(handles()).with_uid("last"))

    return build


def passes(declaration: Any) -> Any:
    return one_input()


def read_with(parallelism: int, source: int = 2, between: Callable[[Any], Any] = lambda stream: stream) -> Build:
    def build(env: ExecutionEnvironment) -> None:
        numbers = between(endless(env).with_parallelism(source))
        written(numbers.process(one_input()).with_uid("first").with_parallelism(parallelism))

    return build


def from_collection(env: ExecutionEnvironment) -> None:
    written(env.from_collection([1]).process(one_input()).with_uid("first").with_parallelism(3))


def read_twice(env: ExecutionEnvironment) -> None:
    numbers = endless(env).with_parallelism(2)
    written(numbers.process(one_input()).with_uid("first").with_parallelism(3))
    numbers.process(one_input()).with_uid("second").with_parallelism(2).to_sink(ToNothing())


def mapped_twice(env: ExecutionEnvironment) -> None:
    numbers = endless(env).with_parallelism(2)
    written(numbers.map(abs).with_uid("first").with_parallelism(3))
    numbers.process(one_input()).with_uid("second").to_sink(ToNothing())


def to_wider_sink(env: ExecutionEnvironment) -> None:
    written_to = endless(env).with_parallelism(2).to_sink(FileSink("out", schema="n int"))
    written_to.with_parallelism(3)


def to(sink: Any) -> Build:
    return lambda env: endless(env).process(one_input()).with_uid("f").to_sink(sink).with_uid("sink")


def waiting_for(until: Any, declared: Any, *, ends: bool = False) -> Build:
    def build(env: ExecutionEnvironment) -> None:
        rules = (bounded if ends else endless)(env, "rules").process(declares(declared)).with_uid("rules function")
        written(with_rules(env, rules, WaitForBroadcast(until)).with_uid("wait"))
        endless(env, "more").process(declares(ALL_READY)).with_uid("more function").to_sink(ToNothing())

    return build


def voted(voters: int, *, keyed: bool = True, handler: Any = handles) -> Build:
    """A watermark that two channels must reach, of ``voters`` subtasks."""

    def build(env: ExecutionEnvironment) -> None:
        votes = endless(env).process(declares(TWO_VOTES)).with_uid("voters").with_parallelism(voters)
        read: Any = votes.key_by(str) if keyed else votes
        written(read.process(handler()).with_uid("count").with_parallelism(voters))

    return build


OTHER = new_builder("other").type_long().build()


def at_end(function: Any, source: Any = endless) -> Build:
    return lambda env: written(source(env).key_by(str).process(function).with_uid("end"))


def unread(env: ExecutionEnvironment) -> None:
    endless(env).map(abs).with_uid("unread")


def unread_side(env: ExecutionEnvironment) -> None:
    written(endless(env).process(one_input(declare_outputs=lambda: [SIDE])).with_uid("unread"))


def read_completely(env: ExecutionEnvironment) -> None:
    both: Any = endless(env).process(two_output()).with_uid("both")
    written(both.first)
    both.second.to_sink(ToNothing())


def kept(ttl: Any, source: Any = endless) -> Build:
    def build(env: ExecutionEnvironment) -> None:
        others = source(env, "others").key_by(str)
        function: Any = join(lambda one, other, output, ctx: None, JoinMode.unbounded(ttl=ttl))
        written(source(env).key_by(str).connect_and_process(others, function).with_uid("join"))

    return build


def named(*uids: str | None, batch: bool = False) -> Build:
    def build(env: ExecutionEnvironment) -> None:
        if batch:
            env.set_execution_mode("batch")
        keyed = bounded(env).key_by(str)
        for number, uid in enumerate(uids):
            function = keyed.process(Remembers("processing-time"))
            if uid is not None:
                function.with_uid(uid)
            function.to_sink(ToNothing()).with_uid(f"sink {number}")

    return build


def in_order(readers: int, function: Callable[[], Any], between: int = 1) -> Build:
    def build(env: ExecutionEnvironment) -> None:
        read = bounded(env).with_parallelism(readers)
        read = read.map(int).with_parallelism(max(readers, between)) if between > 1 else read
        written(read.key_by(lambda number: number % 2).process(function()).with_parallelism(2).with_uid("f"))

    return build


def split(watermarks: Any = None, generator: Any = None) -> Build:
    def build(env: ExecutionEnvironment) -> None:
        spans = env.from_source(Spans({"a": 9}), "spans", watermarks=watermarks).with_uid("spans")
        written((spans if generator is None else spans.process(generator)).process(Waits()).with_uid("waits"))

    return build


STRATEGY = EventTimeExtension.new_watermark_strategy_builder().build_as_watermark_strategy()
HOURS = WindowStrategy.tumbling(timedelta(hours=1))


def fields(findings: list[Finding]) -> list[Severity]:
    return [finding.severity for finding in findings]


W, N = [Severity.WARNING], [Severity.NOTE]


@pytest.mark.parametrize(
    ("code", "build", "expected"),
    [
        ("no-event-time", lambda env: written(endless(env).process(Waits()).with_uid("f")), W),
        ("no-event-time", lambda env: written(bounded(env).process(Waits()).with_uid("f")), W),
        ("no-event-time", lambda env: written(endless(env).process(times()).process(Waits())), []),
        ("no-event-time", lambda env: written(endless(env).process(times(no_watermark=True)).process(Waits())), []),
        ("no-event-time", lambda env: written(endless(env).process(one_input())), []),
        ("no-event-time", split(STRATEGY), []),
        ("no-event-time", split(), W),
        ("no-event-time", windowed(HOURS), W),
        ("no-event-time", windowed(HOURS, times()), []),
        ("no-event-time", windowed(HOURS.with_trigger(CountTrigger(3))), W),
        ("no-event-time", windowed(WindowStrategy.tumbling(MINUTE, "processing")), []),
        ("no-event-time", windowed(WindowStrategy.count(3)), []),
        ("no-event-time", windowed(WindowStrategy.global_()), []),
        ("no-event-time", windowed(WindowStrategy.global_().with_early_firing(MINUTE, "event")), W),
        ("no-event-time", windowed(WindowStrategy.session(MINUTE)), W),
        ("no-event-time", at_end(Remembers("event-time")), W),
        ("no-event-time", at_end(Remembers("processing-time")), []),
        ("no-event-time", joined(lambda one: one, lambda other: other), W),
        ("event-time-stops", joined(lambda one: one, lambda other: other), []),
        ("event-time-stops", joined(lambda one: one.process(times()), lambda other: other), W),
        ("event-time-stops", joined(lambda one: one.process(times()), lambda other: other, ends=True), N),
        ("event-time-stops", joined(lambda one: one.process(times()), lambda other: other.process(times())), []),
        ("event-time-stops", lambda env: written(with_rules(env, endless(env, "rules")).process(Waits())), W),
        ("event-time-stops", lambda env: written(with_rules(env, bounded(env, "rules")).process(Waits())), []),
        ("event-time-stops", lambda env: written(with_rules(env, endless(env, "rules"))), []),
        ("event-time-stops", lambda env: written(endless(env).process(times()).union(endless(env, "b"))), []),
        (
            "event-time-stops",
            lambda env: written(endless(env).process(times()).union(endless(env, "b")).process(Waits())),
            W,
        ),
        ("generator-after-splits", split(generator=times()), N),
        ("generator-after-splits", split(STRATEGY), []),
        ("generator-after-splits", windowed(HOURS, times()), []),
        ("generator-after-splits", split(STRATEGY, times()), []),
        ("event-time-replaced", split(STRATEGY, times()), N),
        ("event-time-replaced", split(generator=times()), []),
        ("event-time-replaced", lambda env: written(endless(env).process(times()).process(times())), N),
        ("event-time-replaced", lambda env: written(endless(env).process(one_input()).process(times())), []),
        ("no-order-of-keys", in_order(2, one_input), N),
        ("no-order-of-keys", in_order(1, one_input), []),
        ("no-order-of-keys", in_order(1, one_input, between=2), N),
        ("no-order-of-keys", in_order(2, lambda: reduced(HOURS, max)), []),
        ("no-order-of-keys", lambda env: written(env.from_source(Spans({"a": 9})).with_parallelism(2)), []),
        ("waits-for-input", united(ALL_READY, declares, passes), W),
        ("waits-for-input", united(ALL_READY, declares, passes, ends=True), N),
        ("waits-for-input", united(ALL_READY, declares, declares), []),
        ("waits-for-input", united(READY, declares, passes), []),
        ("waits-for-input", connected(BOTH_READY), W),
        ("waits-for-input", connected(ALL_READY), []),
        ("waits-for-input", lambda env: written(endless(env).process(times()).union(endless(env, "b"))), []),
        ("broadcast-wait-never-ends", waiting_for(None, OTHER), W),
        ("broadcast-wait-never-ends", waiting_for(None, OTHER, ends=True), []),
        ("broadcast-wait-never-ends", waiting_for(ALL_READY, OTHER), W),
        ("broadcast-wait-never-ends", waiting_for(ALL_READY, ALL_READY), []),
        ("handler-never-called", lambda env: written(endless(env).process(handles()).with_uid("f")), W),
        ("handler-never-called", lambda env: written(endless(env).process(declares()).process(handles())), []),
        ("handler-never-called", lambda env: written(endless(env).process(times()).process(handles())), []),
        (
            "handler-never-called",
            lambda env: written(endless(env).process(declares(LOCAL_READY)).process(one_input()).process(handles())),
            W,
        ),
        ("handler-never-called", lambda env: written(endless(env).process(one_input())), []),
        ("unhandled-watermark", lambda env: written(endless(env).process(declares())), N),
        ("unhandled-watermark", lambda env: written(endless(env).process(declares()).process(one_input())), N),
        ("unhandled-watermark", lambda env: written(endless(env).process(declares()).process(handles())), []),
        ("unhandled-watermark", waiting_for(ALL_READY, ALL_READY), []),
        ("unhandled-watermark", lambda env: written(endless(env).process(times())), []),
        ("too-few-channels", voted(1), W),
        ("too-few-channels", voted(2), []),
        ("too-few-channels", voted(2, keyed=False), W),
        ("too-few-channels", voted(1, handler=one_input), []),
        ("end-never-comes", at_end(AtEnd()), W),
        ("end-never-comes", at_end(AtEnd(), bounded), []),
        ("end-never-comes", at_end(reduced(WindowStrategy.global_(), max)), W),
        ("end-never-comes", windowed(WindowStrategy.global_()), W),
        ("end-never-comes", windowed(WindowStrategy.global_().with_trigger(CountTrigger(3))), []),
        ("end-never-comes", windowed(WindowStrategy.global_().with_early_firing(MINUTE)), []),
        ("end-never-comes", windowed(HOURS), []),
        ("unread-output", unread, W),
        ("unread-output", unread_side, W),
        ("unread-output", read_completely, []),
        ("join-without-ttl", kept(None), N),
        ("join-without-ttl", kept(StateTtl(MINUTE)), []),
        ("join-without-ttl", kept(None, bounded), []),
        ("source-parallelism", read_with(3), N),
        ("source-parallelism", read_with(2), []),
        ("source-parallelism", read_with(3, between=lambda numbers: numbers.map(abs).with_parallelism(2)), N),
        ("source-parallelism", read_with(3, between=lambda numbers: numbers.shuffle()), []),
        ("source-parallelism", read_with(3, between=lambda numbers: numbers.key_by(str)), []),
        ("source-parallelism", from_collection, []),
        ("source-parallelism", read_twice, []),
        ("source-parallelism", mapped_twice, N),
        ("source-parallelism", to_wider_sink, []),
        ("driver-sink", to(CollectSink()), N),
        ("driver-sink", to(FileSink("out", schema="n int")), []),
        ("driver-sink", to(ToNothing()), []),
        ("no-uid", named(None), N),
        ("no-uid", named(None, None), [*W, *W]),
        ("no-uid", named("a", "b"), []),
        ("no-uid", named(None, batch=True), []),
    ],
)  # fmt: skip
def test_programs_and_their_findings(code: str, build: Build, expected: list[Severity]) -> None:
    assert fields(findings(build, code)) == expected


def test_document_lists_every_finding() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "dsv2/plan_view").glob("*find*.py"))
    codes = set(re.findall(r'"([a-z]+(?:-[a-z]+)+)"', sources))
    assert codes == set(re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs/explain.md").read_text(), re.MULTILINE))


def test_only_the_first_place_without_event_time_is_reported() -> None:
    def build(env: ExecutionEnvironment) -> None:
        mixed = endless(env).process(times()).union(endless(env, "others")).with_uid("union")
        first = mixed.process(Waits()).with_uid("first")
        written(first.process(Waits()).with_uid("second"))

    view = viewed(build)
    (finding,) = (one for one in view.findings if one.severity is Severity.WARNING)
    assert [view.operators[number].uid for number in finding.operators] == ["union", "others"]


def test_warnings_come_before_notes_and_name_operators() -> None:
    def build(env: ExecutionEnvironment) -> None:
        endless(env).process(Waits()).with_uid("waits").to_sink(CollectSink()).with_uid("sink")

    view = viewed(build)
    assert [(one.code, view.operators[one.operators[0]].uid) for one in view.findings] == [
        ("no-event-time", "waits"),
        ("driver-sink", "sink"),
    ]


def test_one_process_has_no_costs_of_distribution() -> None:
    env = ExecutionEnvironment.get_instance("local")
    bounded(env, "more").with_parallelism(2).process(one_input()).with_parallelism(3).to_sink(CollectSink())
    assert [one.code for one in env.explain().view.findings] == []
    assert {one.code for one in view_of(env.build_plan()).findings} == {
        "source-parallelism", "driver-sink"
    }  # fmt: skip
