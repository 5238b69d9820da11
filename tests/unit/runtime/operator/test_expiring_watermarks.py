"""Watermarks whose values expire: what is delivered, what keeps them alive, restarts, and jobs without input."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import pytest

from dsv2 import (
    Collector,
    CollectSink,
    ExecutionEnvironment,
    NonPartitionedContext,
    OneInputStreamProcessFunction,
    PartitionedContext,
    Watermark,
    WatermarkDeclaration,
    WatermarkHandlingResult,
    new_builder,
)
from dsv2.errors import WatermarkDeclarationError
from dsv2.local import LocalRuntime
from dsv2.testing import ManualClock, OneInputHarness, Pause, TestSource
from dsv2.watermark import LongWatermarkBuilder, LongWatermarkDeclaration
from dsv2.watermark.arrival_combiner import WatermarkCombiner
from dsv2.watermark.channel_rules import ChannelChange, rules_of
from dsv2.watermark.combiner import new_combiner

SECOND = timedelta(seconds=1)
LIFETIME = timedelta(seconds=3)


def declare() -> LongWatermarkBuilder:
    return new_builder("load").type_long().combine_function_max().expire_after(LIFETIME)


class Watch(OneInputStreamProcessFunction[int, int]):
    """Emits the values that it receives."""

    def __init__(self, result: WatermarkHandlingResult = WatermarkHandlingResult.PEEK) -> None:
        self.result = result

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None: ...

    def on_watermark(
        self, watermark: Watermark, output: Collector[int], ctx: NonPartitionedContext[int]
    ) -> WatermarkHandlingResult:
        output.collect(watermark.value)
        return self.result


class Receiver:
    """A function with two channels."""

    def __init__(self, declaration: LongWatermarkDeclaration, result: Any = WatermarkHandlingResult.PEEK) -> None:
        self.declaration = declaration
        self.harness = OneInputHarness(Watch(result), channels=2, declarations=[declaration])

    def send(self, channel: int, value: int) -> tuple[list[int], list[int]]:
        self.harness.input.push_watermark(self.declaration.new_watermark(value), channel=channel)
        return self.new()

    def wait(self, seconds: int) -> tuple[list[int], list[int]]:
        for _ in range(seconds):
            self.harness.advance_clock(SECOND)
        return self.new()

    def new(self) -> tuple[list[int], list[int]]:
        """The values that the function has received, and those that were sent downstream, since the last call."""
        output = self.harness.output
        found = output.records, [watermark.value for watermark in output.watermarks]
        output.clear()
        return found


@pytest.mark.parametrize("ignored", [False, True])
def test_value_that_was_held_back_is_not_refreshed(ignored: bool) -> None:
    builder = declare().default_handling_strategy_ignore() if ignored else declare()
    polls = WatermarkHandlingResult.PEEK if ignored else WatermarkHandlingResult.POLL
    receiver = Receiver(builder.build(), polls)
    assert receiver.send(0, 5) == ([5], [])
    receiver.wait(1)
    assert receiver.send(0, 5) == ([], [])


def test_deadlines_survive_a_restart() -> None:
    receiver = Receiver(declare().build())
    receiver.send(0, 5)
    receiver.wait(1)
    receiver.send(1, 3)
    snapshot, clock = receiver.harness.snapshot(), receiver.harness.clock
    receiver.harness = OneInputHarness(
        Watch(), channels=2, declarations=[receiver.declaration], snapshot=snapshot, clock=clock
    )
    assert receiver.wait(1) == ([], [])
    assert receiver.wait(1) == ([3], [3])
    receiver.harness = OneInputHarness(
        Watch(), channels=3, declarations=[receiver.declaration], snapshot=snapshot, clock=clock
    )
    assert receiver.new() == ([], [])


def test_uncounted_value_of_an_ended_channel_expires_although_others_live() -> None:
    declaration = declare().combine_wait_for_all_channels(True).build()
    now = 0
    combiner: Any = new_combiner(declaration, 3, (), lambda: now)
    assert [combiner.update(0, 9), combiner.end(0), combiner.update(1, 1)] == [None, None, None]
    now = 2_000
    assert combiner.update(1, 2) is None
    restored: Any = new_combiner(declaration, 3, (), lambda: now)
    restored.restore(combiner.snapshot())
    now = 3_000
    assert restored.expire(now) is None
    assert restored.update(2, 1) == 2


def test_new_channels_have_the_time_of_the_old_ones() -> None:
    declaration = declare().build()
    now = 0
    combiner: Any = new_combiner(declaration, 2, (), lambda: now)
    combiner.update(0, 5)
    now = 1_000
    combiner.update(1, 3)
    rules = rules_of("load", {"load": declaration})
    replaced: Any = new_combiner(declaration, 3, (), lambda: now)
    replaced.restore(rules.replaced(combiner.snapshot(), ChannelChange(2, 3)))
    assert dict(replaced.sent()) == {0: 5, 1: 5, 2: 5}
    assert replaced.next_deadline() == 4_000
    assert replaced.expire(4_000) is None
    assert not replaced.sent()


def test_views_of_one_sender_are_joined_to_the_latest_deadline() -> None:
    declaration = declare().build()
    now = 0
    early, late = (new_combiner(declaration, 1, (), lambda: now) for _ in range(2))
    early.update(0, 5)
    now = 2_000
    late.update(0, 5)
    joined: Any = new_combiner(declaration, 1, (), lambda: now)
    rules = rules_of("load", {"load": declaration})
    joined.restore(rules.joined([early.snapshot(), late.snapshot()], [[0], [0]], ()))
    assert joined.next_deadline() == 5_000


class Beat(OneInputStreamProcessFunction[int, int]):
    """Emits ten times each of the records 1 and 2 as a watermark."""

    def __init__(self, declaration: LongWatermarkDeclaration) -> None:
        self.declaration = declaration

    def declare_watermarks(self) -> Collection[WatermarkDeclaration]:
        return [self.declaration]

    def process_record(self, record: int, output: Collector[int], ctx: PartitionedContext[int]) -> None:
        if record in (1, 2):
            manager = ctx.non_partitioned_context.watermark_manager
            manager.emit_watermark(self.declaration.new_watermark(10 * record))


def test_job_without_input_notices() -> None:
    """The first source emits 20 once. The other emits 10 at 0 and 2 seconds, then nothing until 6 seconds."""
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(0), seed=1))
    declaration, sink = declare().build(), CollectSink[int]()
    first = TestSource[int]([2, Pause(timedelta(seconds=6)), 0])
    second = TestSource[int]([1, Pause(timedelta(seconds=2)), 1, Pause(timedelta(seconds=4)), 0])
    one, other = (env.from_source(source).process(Beat(declaration)) for source in (first, second))
    one.union(other).process(Watch()).to_sink(sink)
    env.execute()
    assert sink.results == [20, 10]


def test_expiry_of_an_aligned_watermark_is_refused() -> None:
    builder = declare().combine_wait_for_all_channels(True).aligned()
    with pytest.raises(WatermarkDeclarationError, match="aligned watermark, so it cannot expire"):
        builder.build()


@pytest.mark.parametrize("duration", [3, timedelta(0), timedelta(microseconds=5)])
def test_duration_is_checked(duration: Any) -> None:
    with pytest.raises(WatermarkDeclarationError, match="duration must be"):
        new_builder("load").type_long().expire_after(duration)


def test_watermarks_without_a_lifetime_have_no_deadlines() -> None:
    assert isinstance(new_combiner(new_builder("plain").type_long().build(), 2), WatermarkCombiner)


def test_explanation_shows_the_lifetime() -> None:
    env = ExecutionEnvironment.get_instance("local")
    env.from_collection([1]).process(Beat(declare().build())).process(Watch()).to_sink(CollectSink())
    explanation = env.explain()
    assert "load  [long, max, expires after 3 s]" in str(explanation)
    assert explanation.view.watermarks[0].expires_after_ms == 3_000
