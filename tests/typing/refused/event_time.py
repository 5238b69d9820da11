"""Mistakes with event time and timers."""

from __future__ import annotations

from datetime import date
from typing import Any

from dsv2 import Collector, NonPartitionedContext, PartitionedContext
from dsv2.extension.event_time import (
    EventTimeExtension,
    EventTimeManager,
    OneInputEventTimeStreamProcessFunction,
    TwoInputBroadcastEventTimeStreamProcessFunction,
    TwoOutputEventTimeStreamProcessFunction,
)
from dsv2.watermark import Watermark
from tests.typing.given import Given


def day_of(record: date) -> str:
    return record.isoformat()


def millisecond(day: date) -> int:
    return day.toordinal()


def generators(g: Given) -> None:
    new_builder = EventTimeExtension.new_watermark_generator_builder
    new_builder(day_of)  # E: arg-type
    new_builder("time")  # E: call-overload
    new_builder(millisecond).with_idleness(1000)  # E: arg-type
    new_builder(millisecond).with_max_out_of_order_time("1 s")  # E: arg-type
    new_builder(millisecond).periodic_watermark(200)  # E: arg-type
    g.other_non_keyed.process(new_builder(millisecond))  # E: call-overload
    g.non_keyed.process(new_builder(millisecond).build_as_process_function())  # E: arg-type
    of_dates = new_builder(millisecond).build_as_watermark_strategy()
    g.env.from_source(g.source, watermarks=of_dates)  # E: misc
    EventTimeExtension.new_watermark_strategy_builder().build_as_process_function()  # E: attr-defined
    EventTimeExtension.EVENT_TIME_WATERMARK_DECLARATION.new_watermark("now")  # E: arg-type
    EventTimeExtension.IDLE_STATUS_WATERMARK_DECLARATION.new_watermark(1)  # E: arg-type
    EventTimeExtension.is_event_time_watermark(5)  # E: arg-type


def managers(manager: EventTimeManager, ctx: PartitionedContext[bytes], other: NonPartitionedContext[bytes]) -> None:
    manager.register_timer("noon")  # E: arg-type
    manager.register_timer(ctx.timestamp)  # E: arg-type
    manager.register_timer(1, "name")  # E: call-arg
    manager.current_time() + "1"  # E: operator
    ctx.processing_time_manager.register_timer(1.5)  # E: arg-type
    print(ctx.event_time_manager)  # E: attr-defined
    print(other.processing_time_manager)  # E: attr-defined
    print(other.timestamp)  # E: attr-defined


class Counted(OneInputEventTimeStreamProcessFunction[int, bytes]):
    def process_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
        self.register_timer(1)  # E: attr-defined

    def on_event_timer(self, timestamp: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
        output.collect(timestamp)  # E: arg-type
        output.collect_and_overwrite_timestamp(b"x")  # E: call-arg

    def on_event_time_watermark(self, watermark: Watermark, output: Any, ctx: Any) -> None: ...  # E: override


class WithoutContext(OneInputEventTimeStreamProcessFunction[int, bytes]):
    def process_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None: ...
    def on_event_timer(self, timestamp: int, output: Collector[bytes]) -> None: ...  # E: override
    def on_processing_timer(self, timestamp: str, output: Any, ctx: Any) -> None: ...  # E: override


class OneCollector(TwoOutputEventTimeStreamProcessFunction[int, bytes, str]):
    def process_record(self, record: int, first: Any, second: Any, ctx: Any) -> None: ...
    def on_event_timer(self, timestamp: int, output: Any, ctx: Any) -> None: ...  # E: override


class Rules(TwoInputBroadcastEventTimeStreamProcessFunction[int, date, bytes]):
    def process_record_from_non_broadcast_input(self, record: int, output: Any, ctx: Any) -> None: ...

    def process_record_from_broadcast_input(self, record: date, ctx: NonPartitionedContext[bytes]) -> None:
        print(ctx.state_manager.current_key)  # E: attr-defined


def functions(g: Given) -> None:
    g.other_keyed.process(Counted())  # E: arg-type
    g.keyed.process(Counted)  # E: arg-type
    g.keyed.process(Counted()).to_sink(g.int_sink)  # E: arg-type
    g.keyed.connect_and_process(g.other_keyed, Rules())  # E: call-overload
