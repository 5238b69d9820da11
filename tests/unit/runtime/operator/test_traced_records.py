"""Traced records: an error behind any number of exchanges names the position of the record in its source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import CollectSink, DeadLetter, ErrorPolicy, ExecutionEnvironment
from dsv2.errors import UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import OneInputWindowStreamProcessFunction, WindowStrategy
from dsv2.functions import (
    AsyncOneInputStreamProcessFunction,
    OneInputStreamProcessFunction,
    TwoInputNonBroadcastStreamProcessFunction,
)
from dsv2.local import LocalRuntime
from dsv2.model import RecordPosition
from dsv2.model.record_batch import RecordBatch
from dsv2.runtime.exchange.position_tracing import CurrentPosition, TracedBatch
from dsv2.watermark import Watermark, WatermarkDeclaration, WatermarkHandlingResult, new_builder
from tests.conformance.functions import Pass

SECONDS = new_builder("seconds").type_long().build()


class Event(NamedTuple):
    """An event. The functions below fail for a bad one."""

    key: str
    time: int
    bad: bool = False


EVENTS = [Event("ab"[number % 2], number * 1000, bad=number == 5) for number in range(12)]


def environment(parallelism: int = 2, **options: Any) -> ExecutionEnvironment:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=(4,), **options))
    env.set_parallelism(parallelism)
    return env


def failure_of(env: ExecutionEnvironment, *, trace_records: bool = True) -> UserFunctionError:
    with pytest.raises(UserFunctionError) as failed:
        env.execute(trace_records=trace_records)
    return failed.value


def check(event: Event) -> Event:
    if event.bad:
        raise ValueError("bad")
    return event


def key_of(event: Event) -> str:
    return event.key


class Check(OneInputStreamProcessFunction[Event, Event]):
    """Fails for a bad record."""

    def process_record(self, record: Event, output: Any, ctx: Any) -> None:
        output.collect(check(record))


class Delay(OneInputStreamProcessFunction[Event, Event]):
    """Emits a record with the next one."""

    def __init__(self) -> None:
        self.last: Event | None = None

    def process_record(self, record: Event, output: Any, ctx: Any) -> None:
        if self.last is not None:
            output.collect(self.last)
        self.last = record


class Both(TwoInputNonBroadcastStreamProcessFunction[Event, Event, Event]):
    """Fails for a bad record of the second input."""

    def process_record_from_first_input(self, record: Event, output: Any, ctx: Any) -> None: ...

    def process_record_from_second_input(self, record: Event, output: Any, ctx: Any) -> None:
        check(record)


class CheckWindow(OneInputWindowStreamProcessFunction[Event, int]):
    """Fails for a window with a bad event."""

    def on_trigger(self, output: Any, ctx: Any, window_ctx: Any) -> None:
        for event in window_ctx.get_all_records():
            check(event)


class CheckReduced(OneInputWindowStreamProcessFunction[Event, Event]):
    """Fails for a bad record that arrives in a window."""

    def on_record(self, record: Event, output: Any, ctx: Any, window_ctx: Any) -> None:
        window_ctx.put_record(check(record))

    def on_trigger(self, output: Any, ctx: Any, window_ctx: Any) -> None: ...


def windowed(stream: Any, function: Any, strategy: WindowStrategy | None = None) -> Any:
    generator: Any = EventTimeExtension.new_watermark_generator_builder(lambda event: event.time).per_event_watermark()
    timed = stream.process(generator.build_as_process_function())
    return timed.key_by(key_of).window(strategy or WindowStrategy.tumbling(timedelta(seconds=3))).process(function)


FIFTH = RecordPosition("in", 0, 5)
PIPELINES: dict[str, Callable[[Any], Any]] = {
    "one exchange": lambda s: s.key_by(key_of).process(Check()),
    "several exchanges": lambda s: (
        s.key_by(key_of).process(Pass()).shuffle().process(Pass()).global_().process(Check())
    ),
    "chained functions": lambda s: s.key_by(key_of).process(Pass()).flat_map(lambda e: [e, e]).map(check),
    "a filter": lambda s: s.shuffle().filter(check),
    "key selector": lambda s: s.key_by(key_of).process(Pass()).key_by(lambda e: check(e).key).process(Pass()),
    "union": lambda s: s.key_by(key_of).process(Pass()).union(s).process(Check()),
    "two inputs": lambda s: s.key_by(key_of).connect_and_process(s.key_by(key_of), Both()),
    "a record of a window": lambda s: windowed(s, CheckReduced()),
    "count window": lambda s: windowed(s, CheckWindow(), WindowStrategy.count(1)),
}


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("seed", range(3))
def test_error_names_the_position(name: str, seed: int) -> None:
    env = environment(seed=seed)
    PIPELINES[name](env.from_collection(EVENTS).with_uid("in")).to_sink(CollectSink())
    failure = failure_of(env)
    assert (failure.cause_type, failure.position) == ("ValueError", FIFTH)
    assert "skip_records={'in': [(0, 5)]}" in str(failure)


@pytest.mark.parametrize("name", PIPELINES)
def test_job_without_that_record_succeeds(name: str) -> None:
    env = environment()
    PIPELINES[name](env.from_collection(EVENTS).with_uid("in")).to_sink(CollectSink())
    env.execute(trace_records=True, skip_records={"in": [(0, 5)]})


def test_untraced_error_names_the_ranges() -> None:
    env = environment()
    env.from_collection(EVENTS).with_uid("in").shuffle().process(Check()).to_sink(CollectSink())
    failure = failure_of(env, trace_records=False)
    assert failure.position is None
    assert "The micro-batch has read:\n  - source 'in', split 0: offset 0 to 7\n" in str(failure)
    assert "With execute(..., trace_records=True) the error names the position of the record." in str(failure)


def test_record_has_the_position_of_the_record_that_caused_it() -> None:
    env = environment(1)
    env.from_collection(EVENTS).with_uid("in").process(Delay()).shuffle().process(Check()).to_sink(CollectSink())
    assert failure_of(env).position == RecordPosition("in", 0, 6)  # without it the bad event is not emitted


def test_window_that_fires_names_its_key_and_the_ranges() -> None:
    env = environment(1)
    windowed(env.from_collection(EVENTS).with_uid("in"), CheckWindow()).to_sink(CollectSink())
    failure = failure_of(env)
    assert (failure.callback, failure.key, failure.position) == ("on_trigger", "'b'", None)
    assert "\n  window:   from 3000 to 6000 ms\n" in str(failure)
    assert "source 'in', split 0: offset" in str(failure)
    assert "trace_records" not in str(failure)


class FailAtWatermark(OneInputStreamProcessFunction[Event, Event]):
    """Emits its last record at a watermark, and fails if ``fails``."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails
        self.last: Event | None = None

    def process_record(self, record: Event, output: Any, ctx: Any) -> None:
        self.last = record

    def on_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> WatermarkHandlingResult:
        if self.fails:
            raise ValueError("bad")
        output.collect(self.last)
        return WatermarkHandlingResult.PEEK


class SendWatermarks(OneInputStreamProcessFunction[Event, Event]):
    """Emits a watermark after a bad record."""

    def declare_watermarks(self) -> list[WatermarkDeclaration]:
        return [SECONDS]

    def process_record(self, record: Event, output: Any, ctx: Any) -> None:
        output.collect(record)
        if record.bad:
            ctx.non_partitioned_context.watermark_manager.emit_watermark(SECONDS.new_watermark(record.time))


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("chained", [True, False])
def test_watermark_has_no_position(fails: bool, chained: bool) -> None:
    env = environment(1)
    sent = env.from_collection(EVENTS).with_uid("in").shuffle().process(SendWatermarks())
    received: Any = sent if chained else sent.shuffle()
    received.process(FailAtWatermark(fails=fails)).shuffle().process(Check()).to_sink(CollectSink())
    failure = failure_of(env)
    assert failure.callback == ("on_watermark" if fails else "process_record")
    assert failure.position is None


def test_dead_letters_have_positions() -> None:
    env, letters = environment(), CollectSink[DeadLetter[Event]]()
    checked = env.from_collection(EVENTS).with_uid("in").key_by(key_of).process(Check())
    checked.with_error_policy(ErrorPolicy().dead_letter(ValueError)).to_sink(CollectSink())
    checked.dead_letters(Event).to_sink(letters)
    env.execute(trace_records=True)
    assert [letter.position for letter in letters.results] == [FIFTH]


def test_sinks_and_subtasks_that_do_not_trace_get_plain_batches() -> None:
    found: list[type] = []

    class Kinds(CollectSink[Event]):
        def write_batch(self, batches: Any, batch_id: int) -> None: ...
        def write(self, info: Any, batches: Any, batch_id: int) -> None:
            found.extend(map(type, batches))

    env = environment(1, checks=False)
    env.from_collection(EVENTS[:5]).shuffle().process(Check()).to_sink(Kinds())
    env.execute(trace_records=True)
    assert set(found) == {RecordBatch}
    assert type(TracedBatch([1], None, [None]).received(None)) is RecordBatch


def test_two_sources_are_told_apart() -> None:
    env = environment()
    good = env.from_collection([Event("a", n) for n in range(9)]).with_uid("good")
    env.from_collection(EVENTS).with_uid("in").union(good).key_by(key_of).process(Check()).to_sink(CollectSink())
    assert failure_of(env).position == FIFTH


@given(st.lists(st.integers(0, 20), min_size=1), st.data())
def test_batch_follows_its_records(numbers: list[int], data: st.DataObject) -> None:
    origin = CurrentPosition()
    positions = [None if number == 0 else ("in", 0, number) for number in numbers]
    stamps = data.draw(st.sampled_from([None, numbers]))
    batch: RecordBatch[int] = TracedBatch(numbers, stamps, positions).received(origin)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, 20), st.integers(0, 20))))
    batch = batch.slice(start, stop)
    for record in data.draw(st.sampled_from([batch.rows(), (record for record, _ in batch.pairs())])):
        assert origin.position == (None if record == 0 else RecordPosition("in", 0, record))
    assert origin.current is None


class Awaiting(AsyncOneInputStreamProcessFunction[Event, Event]):
    """Emits its records later. It fails for a bad one, if ``fails``."""

    def __init__(self, *, fails: bool) -> None:
        self.fails = fails

    async def process_record(self, record: Event, output: Any, ctx: Any) -> None:
        await asyncio.sleep(0)
        output.collect(check(record) if self.fails else record)


@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("chained", [True, False])
def test_async_functions_have_no_position(fails: bool, chained: bool) -> None:
    """Others are processed in the meantime."""
    env = environment(1)
    stream: Any = env.from_collection(EVENTS).with_uid("in").shuffle()
    stream = stream.process(Pass()) if chained else stream
    stream.process(Awaiting(fails=fails)).process(Check()).to_sink(CollectSink())
    failure = failure_of(env)
    assert (failure.record, failure.position) == (repr(EVENTS[5]), None)
    assert "source 'in', split 0: offset" in str(failure)
