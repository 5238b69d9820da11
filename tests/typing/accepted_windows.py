"""The exact types of windows: their functions, wrappers and outputs.

Checked by ``test_typing.py``, never run.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta
from operator import attrgetter
from typing import assert_type

from dsv2 import Collector, OutputTag, PartitionedContext, TwoOutputPartitionedContext
from dsv2.extension.window import (
    OneInputWindowContext,
    OneInputWindowStreamProcessFunction,
    TimeType,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    TwoInputWindowContext,
    TwoOutputWindowStreamProcessFunction,
    WindowContext,
    WindowStrategy,
)
from dsv2.state import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateDeclaration,
    StateDeclarations,
    ValueState,
    aggregate_of,
)
from dsv2.streams import (
    ConfiguredGlobalStream,
    ConfiguredKeyedStream,
    ConfiguredStream,
    KeyedWindowedStream,
    TwoGlobalStreams,
    TwoKeyedStreams,
    TwoStreams,
)
from tests.durations import ms
from tests.typing.given import Given, Mean

NonKeyed = ConfiguredStream
Keyed = ConfiguredKeyedStream
Global = ConfiguredGlobalStream
TwoNonKeyed = TwoStreams

TEN = WindowStrategy.tumbling(ms(10))
LATE = OutputTag("late", int)
LATE_DAYS = OutputTag("late", date)


def strategies() -> list[WindowStrategy]:
    day, hour = timedelta(days=1), timedelta(hours=1)
    return [
        WindowStrategy.global_(),
        WindowStrategy.tumbling(day, TimeType.EVENT, offset=-hour).with_allowed_lateness(hour),
        WindowStrategy.tumbling(ms(10), TimeType.PROCESSING),
        WindowStrategy.cumulate(hour, day, offset=-hour).with_allowed_lateness(hour),
        WindowStrategy.sliding(day, hour, offset=ms(1)).with_allowed_lateness(ms(5)),
        WindowStrategy.of_records(hour).with_allowed_lateness(hour),
        WindowStrategy.session(hour).with_allowed_lateness(hour),
        WindowStrategy.session(attrgetter("gap")),
        WindowStrategy.session(hour, TimeType.PROCESSING).with_early_firing(ms(10)),
        WindowStrategy.count(3, 2).with_early_firing(hour, TimeType.EVENT),
    ]


COUNT = StateDeclarations.value_state("count", int, default=0)
LAST = StateDeclarations.value_state("last", date)
ALL = StateDeclarations.list_state("all", int)
BY_NAME = StateDeclarations.map_state("by name", str, int)
LARGEST = StateDeclarations.reducing_state("largest", int, max)


MEAN = StateDeclarations.aggregating_state("mean", tuple[int, int], Mean())


class Summary(OneInputWindowStreamProcessFunction[int, bytes]):
    """Records and states of windows as a user writes them."""

    def uses_states(self) -> Collection[StateDeclaration]:
        return [COUNT]

    def use_window_states(self) -> Collection[StateDeclaration]:
        return [COUNT, LAST, ALL, BY_NAME, LARGEST, MEAN]

    def on_record(
        self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes], window: OneInputWindowContext[int]
    ) -> None:
        window.put_record(record)
        count = window.get_window_state(COUNT)
        count.update(count.value() + 1)
        of_key = ctx.state_manager.get_state(COUNT)
        of_key.update(of_key.value() + window.end_time - window.start_time)

    def on_trigger(
        self, output: Collector[bytes], ctx: PartitionedContext[bytes], window: OneInputWindowContext[int]
    ) -> None:
        assert_type(window.get_all_records(), list[int])
        assert_type(window.get_window_state(COUNT), ValueState[int, int])
        assert_type(window.get_window_state(LAST).value(), date | None)
        assert_type(window.get_window_state(ALL), ListState[int])
        assert_type(window.get_window_state(BY_NAME), MapState[str, int])
        assert_type(window.get_window_state(LARGEST), ReducingState[int])
        assert_type(window.get_window_state(MEAN), AggregatingState[int, float])
        assert_type(ctx.state_manager.current_key, object)
        assert_type(ctx.state_manager.key_as(tuple[str, int]), tuple[str, int])
        assert_type(ctx.timestamp, int | None)
        output.collect(bytes(window.get_all_records()))


class Match(TwoInputNonBroadcastWindowStreamProcessFunction[int, date, bytes]):
    def on_record1(
        self,
        record: int,
        output: Collector[bytes],
        ctx: PartitionedContext[bytes],
        window: TwoInputWindowContext[int, date],
    ) -> None:
        window.put_record1(record + 1)

    def on_trigger(
        self, output: Collector[bytes], ctx: PartitionedContext[bytes], window: TwoInputWindowContext[int, date]
    ) -> None:
        assert_type(window.get_all_records1(), list[int])
        assert_type(window.get_all_records2(), list[date])

    def on_late_record2(self, record: date, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None:
        output.collect(record.isoformat().encode())


class Split(TwoOutputWindowStreamProcessFunction[int, bytes, list[int]]):
    def on_trigger(
        self,
        first_output: Collector[bytes],
        second_output: Collector[list[int]],
        ctx: TwoOutputPartitionedContext[bytes, list[int]],
        window: OneInputWindowContext[int],
    ) -> None:
        first_output.collect(b"all")
        second_output.collect(window.get_all_records())

    def on_late_record(
        self,
        record: int,
        first_output: Collector[bytes],
        second_output: Collector[list[int]],
        ctx: TwoOutputPartitionedContext[bytes, list[int]],
    ) -> None:
        second_output.collect([record])


def windows(g: Given) -> None:
    assert_type(g.keyed.window(TEN), KeyedWindowedStream[str, int])
    assert_type(g.keyed.window(TEN).process(Summary()), NonKeyed[bytes])
    assert_type(g.keyed.window(TEN).process(Summary(), g.key_of_bytes, version=2), Keyed[str, bytes])
    assert_type(g.global_.window(TEN).process(Summary()), Global[bytes])
    assert_type(g.non_keyed.window(WindowStrategy.global_()).process(Summary()), NonKeyed[bytes])
    assert_type(g.keyed.window(TEN).process(Split()), TwoNonKeyed[bytes, list[int]])
    kept = g.keyed.window(TEN).process(
        Split(), first_key_selector=g.key_of_bytes, second_key_selector=g.key_of_list, version=1
    )
    assert_type(kept, TwoKeyedStreams[str, bytes, list[int]])
    assert_type(g.global_.window(TEN).process(Split()), TwoGlobalStreams[bytes, list[int]])


def two_inputs(g: Given) -> None:
    assert_type(g.keyed.window(TEN).connect_and_process(g.other_keyed, Match()), NonKeyed[bytes])
    assert_type(g.keyed.window(TEN).connect_and_process(g.other_keyed, Match(), g.key_of_bytes), Keyed[str, bytes])
    assert_type(g.global_.window(TEN).connect_and_process(g.other_global, Match()), Global[bytes])
    everything = g.non_keyed.window(WindowStrategy.global_())
    assert_type(everything.connect_and_process(g.other_non_keyed, Match()), NonKeyed[bytes])


def folds(g: Given) -> None:
    windows, days = g.keyed.window(TEN), g.other_keyed.window(TEN)
    assert_type(windows.aggregate(Mean()), NonKeyed[float])
    assert_type(windows.aggregate(Mean(), new_key_selector=str), Keyed[str, float])
    assert_type(windows.aggregate(Mean(), with_start), NonKeyed[tuple[int, float]])
    assert_type(
        windows.aggregate(Mean(), lambda mean, window, ctx: (window.end_time, str(mean))), NonKeyed[tuple[int, str]]
    )
    assert_type(windows.aggregate(aggregate_of(set[int], with_number, len, either)), NonKeyed[int])
    assert_type(g.global_.window(TEN).aggregate(Mean()), Global[float])
    assert_type(days.reduce(later), NonKeyed[date])
    assert_type(days.reduce(later, new_key_selector=date.isoformat, version=3), Keyed[str, date])
    assert_type(windows.reduce(lambda one, other: one + other), NonKeyed[int])
    assert_type(days.reduce(later, lambda day, window, ctx: day.isoformat()), NonKeyed[str])
    assert_type(days.reduce(later, written), NonKeyed[str])
    assert_type(days.reduce(later, written, new_key_selector=str.lower), Keyed[str, str])
    assert_type(g.other_global.window(TEN).reduce(later, written), Global[str])


def late_records(g: Given) -> None:
    assert_type(g.keyed.window(TEN).with_late_output(LATE), KeyedWindowedStream[str, int])
    assert_type(g.other_keyed.window(TEN).with_late_output(LATE_DAYS).reduce(later), NonKeyed[date])
    result = g.keyed.window(TEN).with_late_output(LATE).aggregate(Mean(), with_start)
    assert_type(result, NonKeyed[tuple[int, float]])
    assert_type(result.side_output(LATE), NonKeyed[int])
    both = g.keyed.window(TEN).with_late_output(LATE, LATE_DAYS).connect_and_process(g.other_keyed, Match())
    assert_type(both.side_output(LATE_DAYS), NonKeyed[date])


def variance(
    g: Given,
    of_any: OneInputWindowStreamProcessFunction[object, str],
    of_two: TwoInputNonBroadcastWindowStreamProcessFunction[object, object, str],
    to_two: TwoOutputWindowStreamProcessFunction[object, str, int],
) -> None:
    """Functions on any record can be used here."""
    assert_type(g.other_keyed.window(TEN).process(of_any), NonKeyed[str])
    assert_type(g.global_.window(TEN).process(of_any), Global[str])
    assert_type(g.keyed.window(TEN).connect_and_process(g.other_keyed, of_two), NonKeyed[str])
    assert_type(g.keyed.window(TEN).process(to_two), TwoNonKeyed[str, int])


def with_start(mean: float, window: WindowContext, ctx: PartitionedContext[tuple[int, float]]) -> tuple[int, float]:
    return window.start_time, mean


def with_number(number: int, numbers: set[int]) -> set[int]:
    return numbers | {number}


def either(first: set[int], second: set[int]) -> set[int]:
    return first | second


def written(day: date, window: WindowContext, ctx: PartitionedContext[str]) -> str:
    return day.isoformat()


def later(one: date, other: date) -> date:
    return max(one, other)
