"""The types of aggregates, operators on order, and keyed state in columns. Checked by ``test_typing.py``, never run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple, assert_type

import narwhals as nw
import pyarrow as pa

from dsv2 import KeyedPartitionStream, PartitionedContext
from dsv2.aggregates import ArgMax, Count, CountDistinct, Custom, Key, Lag, Mean, StdDev, Sum, WindowStart
from dsv2.arrow import (
    ArrowCollector,
    ArrowContext,
    ArrowEventTimeProcessFunction,
    ArrowKeyedLists,
    ArrowKeyedState,
    ArrowNonPartitionedContext,
    ArrowProcessFunction,
)
from dsv2.extension.window import WindowStrategy
from dsv2.model import Change
from dsv2.state import AggregateFunction, StateDeclarations, aggregate_of
from dsv2.streams import ConfiguredStream


class Click(NamedTuple):
    user: str
    value: int


@dataclass
class Total:
    user: str
    value: int


class Average(NamedTuple):
    user: str
    value: float


def mean_of(record: Average) -> float:
    return record.value


def is_large(click: Click) -> bool:
    return click.value > 5


AVERAGE: AggregateFunction[int, float, float] = aggregate_of(
    lambda: 0.0, lambda value, total: total + value, lambda total: total
)
TOTALS = StateDeclarations.value_state("totals", Total)
LISTS = StateDeclarations.list_state("lists", Total)


def aggregates(keyed: KeyedPartitionStream[str, Click]) -> None:
    assert_type(keyed.mini_batch().aggregate(Total, user=Key(), value=Sum("value")), ConfiguredStream[Total])
    running = keyed.aggregate(Total, user=Key(), value=Sum("value"))
    assert_type(running, ConfiguredStream[Total])
    means = keyed.aggregate(Average, user=Key(), value=Mean("value"))
    assert_type(means.map(mean_of), ConfiguredStream[float])
    windows = keyed.window(WindowStrategy.tumbling(timedelta(seconds=1)))
    assert_type(windows.aggregate(Total, Click, user=Key(), value=Count()), ConfiguredStream[Total])
    several = keyed.aggregate(Total, user=ArgMax("user", by="value"), value=CountDistinct("user", filter=is_large))
    assert_type(several, ConfiguredStream[Total])
    keyed.aggregate(Total, user=Key(), value=Sum("value", filter=nw.col("value") > 5))
    keyed.aggregate(Average, user=Key(), value=StdDev("value", population=True))
    keyed.aggregate(Average, user=Key(), value=Custom("value", AVERAGE))
    windows.aggregate(Total, user=Key(), value=WindowStart()).with_uid("totals").with_parallelism(2)


def ordered(keyed: KeyedPartitionStream[str, Click]) -> None:
    assert_type(keyed.last("value"), ConfiguredStream[Click])
    assert_type(keyed.first(["value", "user"], descending=[True, False]), ConfiguredStream[Click])
    assert_type(keyed.first(ttl=timedelta(days=1)), ConfiguredStream[Click])
    assert_type(keyed.top_n(3, by="value"), ConfiguredStream[Change[Click]])
    assert_type(keyed.top_n(3, Total, by="value", rank="value"), ConfiguredStream[Change[Total]])
    assert_type(keyed.top_n(3, Total, by=None, change="user"), ConfiguredStream[Total])
    windows = keyed.window(WindowStrategy.tumbling(timedelta(seconds=1)))
    assert_type(windows.last(), ConfiguredStream[Click])
    assert_type(windows.top_n(3, by=("value", "user"), ties="rank"), ConfiguredStream[Click])
    assert_type(windows.top_n(3, Total, by="value", rank="value"), ConfiguredStream[Total])
    assert_type(keyed.over(rows=3).aggregate(Total, value=Sum("value")), ConfiguredStream[Total])
    assert_type(keyed.over(rows=3).aggregate(Total, value=Lag("value", 2)), ConfiguredStream[Total])


class Totals(ArrowEventTimeProcessFunction[Click, Total]):
    def process_batch(self, batch: pa.Table, output: ArrowCollector[Total], ctx: ArrowContext[Total]) -> None:
        state = ctx.keyed_state(TOTALS)
        assert_type(state, ArrowKeyedState[Total])
        assert_type(ctx.keyed_state(LISTS), ArrowKeyedLists[Total])
        state.update(batch["user"], {"value": batch["value"], "user": "nobody"})
        ctx.event_timers.register(batch["user"], 5)
        assert_type(ctx.task_info.parallelism, int)

    def on_event_timers(self, timers: pa.Table, output: ArrowCollector[Total], ctx: ArrowContext[Total]) -> None:
        output.collect(Total("a", ctx.event_timers.current_time()))

    def on_event_time_watermark(
        self, timestamp: int, output: ArrowCollector[Total], ctx: ArrowNonPartitionedContext[Total]
    ) -> None:
        ctx.apply_to_all_partitions(self.report)

    def report(self, output: ArrowCollector[Total], ctx: ArrowContext[Total]) -> None:
        for table in ctx.keyed_state(TOTALS).tables():
            output.collect_batch(table)


class WithoutState(ArrowProcessFunction[Click, Total]):
    """The context may be declared with less."""

    def process_batch(self, batch: pa.Table, output: ArrowCollector[Total], ctx: PartitionedContext[Total]) -> None:
        output.collect_batch(batch)


def functions(keyed: KeyedPartitionStream[str, Click]) -> None:
    assert_type(keyed.process(Totals()), ConfiguredStream[Total])
    assert_type(keyed.process(WithoutState()), ConfiguredStream[Total])
