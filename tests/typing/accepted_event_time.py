"""The exact types of event time and timers.

Checked by ``test_typing.py``, never run.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, datetime, timedelta
from typing import assert_type

from dsv2 import (
    Collector,
    NonPartitionedContext,
    PartitionedContext,
    TwoOutputNonPartitionedContext,
    TwoOutputPartitionedContext,
)
from dsv2.extension.event_time import (
    EventTimeExtension,
    EventTimeExtractor,
    EventTimeManager,
    EventTimeWatermarkGeneratorBuilder,
    OneInputEventTimeStreamProcessFunction,
    TwoInputBroadcastEventTimeStreamProcessFunction,
    TwoInputNonBroadcastEventTimeStreamProcessFunction,
    TwoOutputEventTimeStreamProcessFunction,
)
from dsv2.extension.event_time.generator import WatermarkGenerator
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.model import ProcessingTimeManager
from dsv2.sources import WatermarkStrategy
from dsv2.state import StateDeclaration, StateDeclarations
from dsv2.streams import ConfiguredGlobalStream, ConfiguredKeyedStream, ConfiguredStream, TwoStreams
from dsv2.watermark import (
    BoolWatermark,
    BoolWatermarkDeclaration,
    LongWatermark,
    LongWatermarkDeclaration,
    Watermark,
    WatermarkHandlingResult,
)
from tests.typing.given import Given

NonKeyed = ConfiguredStream
Keyed = ConfiguredKeyedStream
TwoNonKeyed = TwoStreams

EVENT_TIME = EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION
IDLE = EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION
COUNT = StateDeclarations.value_state("count", int, default=0)


def millisecond(day: date) -> int:
    return day.toordinal()


def generators(g: Given, extract: EventTimeExtractor[date]) -> None:
    new_builder = EventTimeExtension.new_watermark_generator_builder
    assert_type(new_builder(millisecond), EventTimeWatermarkGeneratorBuilder[date])
    assert_type(new_builder(extract), EventTimeWatermarkGeneratorBuilder[date])
    second = timedelta(seconds=1)
    generator = (
        new_builder(millisecond)
        .with_idleness(second)
        .with_max_out_of_order_time(second)
        .no_watermark()
        .periodic_watermark()
        .periodic_watermark(second)
        .per_event_watermark()
        .build_as_process_function()
    )
    assert_type(generator, WatermarkGenerator[date])
    as_function: OneInputStreamProcessFunction[date, date] = generator
    assert_type(g.other_non_keyed.process(as_function), NonKeyed[date])
    assert_type(g.other_non_keyed.process(generator), NonKeyed[date])
    assert_type(g.other_keyed.process(generator, str), Keyed[str, date])
    assert_type(new_builder(millisecond).build_as_watermark_strategy(), WatermarkStrategy[date])
    of_subclass: EventTimeWatermarkGeneratorBuilder[datetime] = new_builder(millisecond)
    assert_type(of_subclass.build_as_process_function(), WatermarkGenerator[datetime])


def generators_of_lambdas(g: Given) -> None:
    """The lambda needs no annotation, and the stream keeps the type of its records."""
    builder = EventTimeExtension.new_watermark_generator_builder(lambda record: record.toordinal())
    generator = builder.with_idleness(timedelta(seconds=1)).build_as_process_function()
    assert_type(generator, WatermarkGenerator[object])
    assert_type(g.other_non_keyed.process(generator), NonKeyed[date])
    assert_type(g.other_keyed.process(generator), NonKeyed[date])
    assert_type(g.other_keyed.process(generator, lambda day: day.isoformat()), Keyed[str, date])
    assert_type(g.other_non_keyed.global_().process(generator), ConfiguredGlobalStream[date])
    strategy = EventTimeExtension.new_watermark_generator_builder(
        lambda record: record.time
    ).build_as_watermark_strategy()
    assert_type(g.env.from_source(g.source, watermarks=strategy), NonKeyed[int])


def strategies(g: Given) -> None:
    of_source = EventTimeExtension.new_watermark_strategy_builder().with_idleness(timedelta(seconds=1))
    strategy = of_source.per_event_watermark().build_as_watermark_strategy()
    assert_type(strategy, WatermarkStrategy[object])
    assert_type(g.env.from_source(g.source, watermarks=strategy), NonKeyed[int])
    aligned = strategy.with_watermark_alignment("group", timedelta(seconds=1))
    assert_type(g.env.from_source(g.source, watermarks=aligned), NonKeyed[int])


def watermarks(watermark: Watermark) -> None:
    assert_type(EVENT_TIME, LongWatermarkDeclaration)
    assert_type(EVENT_TIME.new_watermark(5), LongWatermark)
    assert_type(IDLE, BoolWatermarkDeclaration)
    assert_type(IDLE.new_watermark(True), BoolWatermark)
    assert_type(EventTimeExtension.is_event_time_watermark(watermark), bool)
    assert_type(EventTimeExtension.is_idle_status_watermark(watermark.identifier), bool)


class Counted(OneInputEventTimeStreamProcessFunction[int, bytes]):
    """Every callback as a user writes it."""

    def init_event_time_process_function(self, manager: EventTimeManager) -> None:
        self.time = manager

    def uses_states(self) -> Collection[StateDeclaration]:
        return [COUNT]

    def process_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
        assert_type(self.time.current_time(), int)
        assert_type(ctx.timestamp, int | None)
        self.time.register_timer((ctx.timestamp or 0) + record)
        self.time.delete_timer(self.time.current_time())
        clock = ctx.processing_time_manager
        assert_type(clock, ProcessingTimeManager)
        clock.register_timer(clock.current_time() + 1000)

    def on_event_timer(self, timestamp: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
        output.collect(ctx.state_manager.get_state(COUNT).value().to_bytes())
        output.collect_and_overwrite_timestamp(b"later", timestamp + 1)

    def on_processing_timer(self, timestamp: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
        ctx.state_manager.get_state(COUNT).clear()

    def on_event_time_watermark(
        self, timestamp: int, output: Collector[bytes], ctx: NonPartitionedContext[bytes]
    ) -> None:
        ctx.apply_to_all_partitions(lambda output, partition: output.collect(timestamp.to_bytes()))

    def on_watermark(
        self, watermark: Watermark, output: Collector[bytes], ctx: NonPartitionedContext[bytes]
    ) -> WatermarkHandlingResult:
        return WatermarkHandlingResult.PEEK


class Split(TwoOutputEventTimeStreamProcessFunction[int, bytes, list[int]]):
    def process_record(
        self,
        record: int,
        first_output: Collector[bytes],
        second_output: Collector[list[int]],
        ctx: TwoOutputPartitionedContext[bytes, list[int]],
    ) -> None: ...

    def on_event_timer(
        self,
        timestamp: int,
        first_output: Collector[bytes],
        second_output: Collector[list[int]],
        ctx: TwoOutputPartitionedContext[bytes, list[int]],
    ) -> None:
        second_output.collect([timestamp])

    def on_event_time_watermark(
        self,
        timestamp: int,
        first_output: Collector[bytes],
        second_output: Collector[list[int]],
        ctx: TwoOutputNonPartitionedContext[bytes, list[int]],
    ) -> None:
        ctx.apply_to_all_partitions(lambda first, second, partition: second.collect([timestamp]))


def functions(
    g: Given,
    both: TwoInputNonBroadcastEventTimeStreamProcessFunction[int, date, bytes],
    with_rules: TwoInputBroadcastEventTimeStreamProcessFunction[int, date, bytes],
) -> None:
    assert_type(g.keyed.process(Counted()), NonKeyed[bytes])
    assert_type(g.keyed.process(Counted(), g.key_of_bytes), Keyed[str, bytes])
    assert_type(g.keyed.process(Split()), TwoNonKeyed[bytes, list[int]])
    assert_type(g.keyed.connect_and_process(g.other_keyed, both), NonKeyed[bytes])
    assert_type(g.keyed.connect_and_process(g.other_broadcast, with_rules), NonKeyed[bytes])
