"""The types of resources and of the operators that need no function. Checked by ``test_typing.py``, never run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial
from typing import NamedTuple, assert_type

import narwhals as nw

from dsv2 import Resource, StateTtl, new_builder
from dsv2.extension.window import (
    CountEvictor,
    CountTrigger,
    DeltaTrigger,
    OneInputWindowStreamProcessFunction,
    PurgingTrigger,
    TimedRecord,
    TriggerContext,
    TriggerResult,
    WindowAssigner,
    WindowContext,
    WindowEvictor,
    WindowStrategy,
    WindowTrigger,
)
from dsv2.extension.window.strategy import AssignedWindowStrategy, CountWindowStrategy, GlobalWindowStrategy
from dsv2.functions import TwoInputBroadcastStreamProcessFunction
from dsv2.state import TtlTimeCharacteristic
from dsv2.streams import ConfiguredGlobalStream, ConfiguredKeyedStream, ConfiguredStream, WaitForBroadcast
from tests.typing.given import Given

DONE = new_builder("done").type_bool().build()


def load(path: str) -> date:
    return date.fromisoformat(path)


def resources() -> None:
    assert_type(Resource(date.today), Resource[date])
    assert_type(Resource(partial(load, "2024-01-01"), close=date.isoformat).get(), date)
    assert_type(Resource(lambda: load("2024-01-01")).get(), date)


def operators(g: Given) -> None:
    assert_type(g.non_keyed.union(g.non_keyed), ConfiguredStream[int])
    assert_type(g.non_keyed.union(g.non_keyed, g.non_keyed.map(str).map(len)).with_uid("all"), ConfiguredStream[int])
    assert_type(g.non_keyed.deduplicate(str, timedelta(hours=1)), ConfiguredStream[int])
    assert_type(
        g.non_keyed.deduplicate(lambda record: record + 1, StateTtl(timedelta(1)), version=2), ConfiguredStream[int]
    )
    assert_type(g.non_keyed.deduplicate(str, None), ConfiguredStream[int])
    assert_type(g.non_keyed.sample(0.5, seed=1), ConfiguredStream[int])
    assert_type(g.other_non_keyed.limit(10), ConfiguredGlobalStream[date])


def operators_of_partitions(g: Given) -> None:
    assert_type(g.keyed.map(str), ConfiguredStream[str])
    assert_type(g.keyed.filter(bool).with_uid("some"), ConfiguredStream[int])
    assert_type(g.keyed.flat_map(range), ConfiguredStream[int])
    assert_type(g.global_.map(str).filter(str.isdigit), ConfiguredGlobalStream[str])
    assert_type(g.other_global.flat_map(lambda day: [day.year, day.month]), ConfiguredGlobalStream[int])
    assert_type(g.global_.union(g.global_, g.other_global.map(date.toordinal)), ConfiguredGlobalStream[int])


class Row(NamedTuple):
    """A record with columns."""

    number: int


def expressions(g: Given) -> None:
    large = nw.col("number") > 100
    assert_type(g.non_keyed.where(large, Row), ConfiguredStream[int])
    assert_type(g.keyed.where(large), ConfiguredStream[int])
    assert_type(g.global_.where(large), ConfiguredGlobalStream[int])
    assert_type(g.non_keyed.select(Row, number="number"), ConfiguredStream[Row])
    assert_type(g.keyed.with_columns(Row, Row, number=nw.col("number") + 1), ConfiguredStream[Row])
    assert_type(g.global_.select(Row, number=nw.lit(1)), ConfiguredGlobalStream[Row])
    assert_type(g.global_.with_columns(Row), ConfiguredGlobalStream[Row])


def waits(g: Given, f: TwoInputBroadcastStreamProcessFunction[int, date, bytes]) -> None:
    wait = WaitForBroadcast(DONE, max_records=10)
    WaitForBroadcast(DONE.new_watermark(True))
    assert_type(g.non_keyed.connect_and_process(g.other_broadcast, f, wait_for_broadcast=wait), ConfiguredStream[bytes])
    assert_type(g.keyed.connect_and_process(g.other_broadcast, f, wait_for_broadcast=wait), ConfiguredStream[bytes])
    assert_type(
        g.keyed.connect_and_process(g.other_broadcast, f, bytes.hex, wait_for_broadcast=wait),
        ConfiguredKeyedStream[str, bytes],
    )
    assert_type(g.other_broadcast.connect_and_process(g.keyed, f, wait_for_broadcast=wait), ConfiguredStream[bytes])


class Every(WindowTrigger[int]):
    def on_record(self, record: int, timestamp: int | None, ctx: TriggerContext) -> TriggerResult:
        ctx.state = record
        ctx.register_event_timer(ctx.end_time)
        return TriggerResult.FIRE if timestamp == ctx.start_time else TriggerResult.CONTINUE


def triggers(g: Given, f: OneInputWindowStreamProcessFunction[int, bytes]) -> None:
    strategy = WindowStrategy.global_()
    assert_type(strategy.with_trigger(CountTrigger(3)), GlobalWindowStrategy)
    assert_type(PurgingTrigger(Every()), PurgingTrigger[int])
    assert_type(DeltaTrigger(0.5, distance), DeltaTrigger[int])
    purging = strategy.with_trigger(PurgingTrigger(Every()))
    assert_type(g.non_keyed.window(purging).process(f), ConfiguredStream[bytes])


class Hours(WindowAssigner[int]):
    def assign_windows(self, record: int, timestamp: int) -> list[tuple[int, int]]:
        return [(timestamp, timestamp + record)]


class Positive(WindowEvictor[int]):
    def evict_before(self, records: Sequence[TimedRecord[int]], window: WindowContext) -> list[TimedRecord[int]]:
        return [one for one in records if one.record > 0 or one.timestamp == window.start_time]


def assigners_and_evictors() -> None:
    assert_type(WindowStrategy.assigned_by(Hours(), "event"), AssignedWindowStrategy)
    assert_type(WindowStrategy.count(3).with_evictor(Positive()), CountWindowStrategy)
    assert_type(WindowStrategy.global_().with_evictor(CountEvictor(3, after=True)), GlobalWindowStrategy)


def distance(last: int, record: int) -> float:
    return abs(record - last)


def lifetimes() -> None:
    StateTtl(timedelta(1), time_characteristic=TtlTimeCharacteristic.EVENT_TIME)
    StateTtl(timedelta(1), "on-read-and-write", "event-time")
