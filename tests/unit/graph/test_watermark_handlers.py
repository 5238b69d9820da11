"""Handlers of single watermarks: which of them is called, and what is refused when the plan is built."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Set
from typing import Any, NamedTuple

import pytest

from dsv2 import (
    CollectSink,
    ExecutionEnvironment,
    OneInputStreamProcessFunction,
    TwoInputBroadcastStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
    TwoOutputStreamProcessFunction,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
    on,
)
from dsv2.arrow import ArrowProcessFunction
from dsv2.errors import WatermarkDeclarationError
from dsv2.extension.event_time import EventTimeExtension, OneInputEventTimeStreamProcessFunction
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.functions import AsyncOneInputStreamProcessFunction
from tests.support import local_environment

PEEK, POLL = WatermarkHandlingResult.PEEK, WatermarkHandlingResult.POLL
TAGS = new_builder("tags").type_set(str).build()
LOAD = new_builder("load").type_float().build()
DONE = new_builder("done").type_bool().build()
DECLARED = (TAGS, LOAD, DONE)


class Row(NamedTuple):
    number: int


class Sends(OneInputStreamProcessFunction[int, int]):
    """Sends one of each watermark after each record."""

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return DECLARED

    def process_record(self, record: int, output: Any, ctx: Any) -> None:
        output.collect(record)
        for watermark in (TAGS.new_watermark({str(record)}), LOAD.new_watermark(record), DONE.new_watermark(True)):
            ctx.non_partitioned_context.watermark_manager.emit_watermark(watermark)


class Names(OneInputStreamProcessFunction[int, str]):
    """Two handlers and the callback for everything else."""

    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...

    @on(TAGS)
    def follow_tags(self, watermark: Watermark[Set[str]], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"tags {sorted(watermark.value)}")
        return POLL

    @on(LOAD)
    def follow_load(self, watermark: Watermark[float], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"load {watermark.value}")
        return PEEK

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"{watermark.identifier} {watermark.value}")
        return PEEK


class Passes(OneInputStreamProcessFunction[str, str]):
    """Passes records on, and names the watermarks."""

    def process_record(self, record: str, output: Any, ctx: Any) -> None:
        output.collect(record)

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"after: {watermark.identifier}")
        return PEEK


def results(build: Callable[[ExecutionEnvironment, CollectSink[Any]], object]) -> list[Any]:
    env, sink = local_environment(), CollectSink[Any]()
    build(env, sink)
    env.execute("handlers")
    return sink.results


def test_each_watermark_goes_to_its_handler() -> None:
    def build(env: Any, sink: Any) -> None:
        env.from_collection([1]).process(Sends()).process(Names()).process(Passes()).to_sink(sink)

    seen = results(build)
    assert seen == ["tags ['1']", "load 1.0", "after: load", "done True", "after: done"]


class OverridesNames(Names):
    """A subclass whose method replaces a handler."""

    def follow_tags(self, watermark: Watermark[Set[str]], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect("replaced")
        return POLL


def test_method_that_overrides_a_handler_is_one() -> None:
    seen = results(lambda env, sink: env.from_collection([1]).process(Sends()).process(OverridesNames()).to_sink(sink))
    assert seen == ["replaced", "load 1.0", "done True"]


class Joined(TwoInputNonBroadcastStreamProcessFunction[int, int, str]):
    def process_record_from_first_input(self, record: int, output: Any, ctx: Any) -> None: ...
    def process_record_from_second_input(self, record: int, output: Any, ctx: Any) -> None: ...

    @on(LOAD, input="first")
    def load_of_first(self, watermark: Watermark[float], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"first {watermark.value}")
        return PEEK

    @on(LOAD, input="second")
    def load_of_second(self, watermark: Watermark[float], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"second {watermark.value}")
        return PEEK

    @on(TAGS, input="first")
    @on(TAGS, input="second")
    def of_both(self, watermark: Watermark[Set[str]], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"any {sorted(watermark.value)}")
        return PEEK


def test_inputs_have_handlers_of_their_own() -> None:
    def build(env: Any, sink: Any) -> None:
        first, second = (env.from_collection([number]).process(Sends()) for number in (1, 2))
        first.connect_and_process(second, Joined()).to_sink(sink)

    assert sorted(results(build)) == ["any ['1']", "any ['2']", "first 1.0", "second 2.0"]


class WithRules(TwoInputBroadcastStreamProcessFunction[int, int, str]):
    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None: ...
    def process_record_from_broadcast_input(self, record: int, ctx: Any) -> None: ...

    @on(LOAD, input="non-broadcast")
    def load(self, watermark: Watermark[float], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"main {watermark.value}")
        return PEEK

    @on(DONE, input="broadcast")
    def done(self, watermark: Watermark[bool], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"rules {watermark.value}")
        return PEEK


def test_broadcast_inputs_have_handlers_of_their_own() -> None:
    def build(env: Any, sink: Any) -> None:
        main, rules = (env.from_collection([number]).process(Sends()) for number in (1, 2))
        main.connect_and_process(rules.broadcast(), WithRules()).to_sink(sink)

    assert sorted(results(build)) == ["main 1.0", "rules True"]


class Splits(TwoOutputStreamProcessFunction[int, str, str]):
    def process_record(self, record: int, first_output: Any, second_output: Any, ctx: Any) -> None: ...

    @on(LOAD)
    def load(
        self, watermark: Watermark[float], first_output: Any, second_output: Any, ctx: Any
    ) -> WatermarkHandlingResult:
        first_output.collect("first")
        second_output.collect("second")
        return PEEK


def test_handler_of_a_function_with_two_outputs() -> None:
    def build(env: Any, sink: Any) -> None:
        split = env.from_collection([1]).process(Sends()).process(Splits())
        split.first.to_sink(sink)
        split.second.to_sink(sink)

    assert sorted(results(build)) == ["first", "second"]


class Asks(AsyncOneInputStreamProcessFunction[int, str]):
    async def process_record(self, record: int, output: Any, ctx: Any) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        output.collect(f"record {record}")

    @on(LOAD)
    def load(self, watermark: Watermark[float], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"load {watermark.value}")
        return PEEK


def test_handler_of_an_async_function_is_called_when_the_records_before_are_completed() -> None:
    seen = results(lambda env, sink: env.from_collection([1, 2]).process(Sends()).process(Asks()).to_sink(sink))
    assert seen == ["record 1", "load 1.0", "record 2", "load 2.0"]


class Tables(ArrowProcessFunction[Row, Row]):
    def process_batch(self, batch: Any, output: Any, ctx: Any) -> None: ...

    @on(LOAD)
    def load(self, watermark: Watermark[float], output: Any, ctx: Any) -> WatermarkHandlingResult:
        import pyarrow as pa

        output.collect_batch(pa.table({"number": [int(watermark.value)]}))
        return PEEK


def test_handler_of_a_function_on_tables() -> None:
    def build(env: Any, sink: Any) -> None:
        sent = env.from_collection([7]).process(Sends())
        sent.map(Row).process(Tables()).to_sink(sink)

    assert results(build) == [Row(7)]


class InWindows(OneInputWindowStreamProcessFunction[int, str]):
    def on_trigger(self, output: Any, ctx: Any, window: Any) -> None: ...

    @on(LOAD)
    def load(self, watermark: Watermark[float], output: Any, ctx: Any) -> WatermarkHandlingResult:
        output.collect(f"load {watermark.value}")
        return PEEK


def test_handler_of_a_window_function() -> None:
    def build(env: Any, sink: Any) -> None:
        sent = env.from_collection([1]).process(Sends())
        sent.window(WindowStrategy.global_()).process(InWindows()).to_sink(sink)

    assert results(build) == ["load 1.0"]


OTHER = new_builder("load").type_long().build()
UNKNOWN = new_builder("unknown").type_long().build()
EVENT_TIME = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION


class Base(OneInputStreamProcessFunction[int, str]):
    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return DECLARED

    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...


class Undeclared(Base):
    @on(UNKNOWN)
    def handle(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return PEEK


class Different(Base):
    @on(OTHER)
    def handle(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return PEEK


class Twice(Base):
    @on(LOAD)
    def one(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return PEEK

    @on(LOAD)
    def two(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return PEEK


class TooFew(Base):
    @on(LOAD)
    def handle(self, watermark: Any) -> WatermarkHandlingResult:
        return PEEK


class NotPlain(Base):
    @on(LOAD)  # type: ignore[arg-type]
    async def handle(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return PEEK


class OfNoInput(Base):
    @on(LOAD, input="first")
    def handle(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return PEEK


class Callback(Base):
    @on(LOAD)
    def on_watermark(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return PEEK


class OfEventTime(OneInputEventTimeStreamProcessFunction[int, str]):
    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [EVENT_TIME]

    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...

    @on(EVENT_TIME)
    def handle(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return PEEK


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (Undeclared(), "Undeclared.handle handles the watermark 'unknown', but no function or source of the job decl"),
        (Different(), "Different.handle handles the watermark 'load', but the job declares it differently: Watermark"),
        (Twice(), "Twice.two handles the watermark 'load', but one handles this watermark as well. Keep one of the t"),
        (TooFew(), "TooFew.handle handles the watermark 'load', but it must accept the arguments (watermark, output,"),
        (NotPlain(), "NotPlain.handle handles the watermark 'load', but it is a coroutine"),
        (OfNoInput(), "OfNoInput.handle handles the watermark 'load', but the function has one input. Omit input=..."),
        (Callback(), "Callback.on_watermark handles the watermark 'load', but on_watermark receives all watermarks w"),
        (OfEventTime(), "but a function with event time does not receive it. Use on_event_time_watermark"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_wrong_handlers_are_refused_when_the_plan_is_built(function: Any, problem: str) -> None:
    env = local_environment()
    env.from_collection([1]).process(function).to_sink(CollectSink())
    with pytest.raises(WatermarkDeclarationError) as failed:
        env.build_plan()
    assert problem in str(failed.value)
    assert "test_watermark_handlers.py:" in str(failed.value)


class SaysNoInput(Joined):
    @on(DONE)
    def handle(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return PEEK


def test_handler_of_two_inputs_says_which() -> None:
    env = local_environment()
    first, second = (env.from_collection([number]).process(Sends()) for number in (1, 2))
    first.connect_and_process(second, SaysNoInput()).to_sink(CollectSink())
    with pytest.raises(WatermarkDeclarationError, match="Pass input='first' or input='second' to @on"):
        env.build_plan()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: on("load"), "@on requires a watermark declaration, not 'load'"),  # type: ignore[call-overload]
        (lambda: on(LOAD, input="third"), "input must be"),  # type: ignore[call-overload]
    ],
)
def test_wrong_arguments_of_the_decorator(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(WatermarkDeclarationError, match=message):
        call()


class NoAnswer(Base):
    @on(LOAD)  # type: ignore[arg-type]
    def handle(self, watermark: Any, output: Any, ctx: Any) -> None: ...


def test_handler_must_return_a_result() -> None:
    env = local_environment()
    env.from_collection([1]).process(Sends()).process(NoAnswer()).to_sink(CollectSink())
    with pytest.raises(Exception, match=r"handle returned None. Return WatermarkHandlingResult.PEEK"):
        env.execute("no answer")


def test_only_watermarks_with_handlers_are_sent_one_by_one() -> None:
    """The others are superseded by later values at the same position, because nothing receives them."""
    env = local_environment()
    sent = env.from_collection([1]).process(Sends())
    sent.process(HandlesLoad()).with_parallelism(2).to_sink(CollectSink())
    edge = next(edge for edge in env.build_plan().edges if edge.last_only)
    assert edge.last_only == {"tags", "done"}


class HandlesLoad(OneInputStreamProcessFunction[int, str]):
    def process_record(self, record: int, output: Any, ctx: Any) -> None: ...

    @on(LOAD)
    def handle(self, watermark: Any, output: Any, ctx: Any) -> WatermarkHandlingResult:
        return PEEK


def test_explanations_name_handlers() -> None:
    env = local_environment()
    env.from_collection([1]).process(Sends()).process(HandlesLoad()).to_sink(CollectSink())
    text = str(env.explain())
    assert "handles watermarks: handle (load)" in text
    assert "load  [float, min]\n    declared by Process\n    can reach Process\n    handled by Process" in text
