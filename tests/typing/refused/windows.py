"""Invalid windows, and functions that do not match them."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from dsv2 import Collector, OutputTag, PartitionedContext
from dsv2.extension.window import (
    CountTrigger,
    OneInputWindowContext,
    OneInputWindowStreamProcessFunction,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    TwoInputWindowContext,
    WindowContext,
    WindowStrategy,
)
from dsv2.state import AggregateFunction, StateDeclarations, aggregate_of
from tests.typing.given import Given

LATE = OutputTag("late", int)
TEN = WindowStrategy.tumbling(timedelta(minutes=10))
COUNT = StateDeclarations.value_state("count", int)
RULES = StateDeclarations.map_state_builder("rules", str, int).build_broadcast()


def strategies() -> None:
    WindowStrategy.tumbling("10")  # E: arg-type
    WindowStrategy.tumbling(10)  # E: arg-type
    WindowStrategy.tumbling(timedelta(minutes=10), "EVENT")  # E: arg-type
    WindowStrategy.sliding(timedelta(minutes=10))  # E: call-arg
    WindowStrategy.count(10).with_allowed_lateness(timedelta(1))  # E: attr-defined
    TEN.with_allowed_lateness(5)  # E: arg-type
    WindowStrategy.count(timedelta(seconds=1))  # E: arg-type
    WindowStrategy.global_(10)  # E: call-arg
    TEN.with_early_firing("1 s")  # E: arg-type
    WindowStrategy()  # E: abstract


class Numbers(OneInputWindowStreamProcessFunction[int, bytes]):
    def on_record(
        self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes], window: OneInputWindowContext[int]
    ) -> None:
        window.put_record("a")  # E: arg-type
        window.put_record1(record)  # E: attr-defined

    def on_trigger(
        self, output: Collector[bytes], ctx: PartitionedContext[bytes], window: OneInputWindowContext[int]
    ) -> None:
        output.collect(window.get_all_records())  # E: arg-type
        window.get_window_state("count")  # E: arg-type
        window.get_window_state(RULES)  # E: arg-type
        window.get_window_state(COUNT).value() + 1  # E: operator
        window.get_window_state(COUNT).update("a")  # E: arg-type
        window.start_time = 5  # E: misc


class Match(TwoInputNonBroadcastWindowStreamProcessFunction[int, date, bytes]):
    def on_trigger(
        self, output: Collector[bytes], ctx: PartitionedContext[bytes], window: TwoInputWindowContext[int, date]
    ) -> None:
        window.get_all_records()  # E: attr-defined
        window.put_record1(date.min)  # E: arg-type
        for day in window.get_all_records2():
            output.collect(day)  # E: arg-type


class WithoutWindow(OneInputWindowStreamProcessFunction[int, bytes]):
    def on_trigger(self, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None: ...  # E: override


class OfOthers(OneInputWindowStreamProcessFunction[int, bytes]):
    def on_late_record(self, record: date, output: Any, ctx: Any) -> None: ...  # E: override

    def on_trigger(
        self, output: Collector[bytes], ctx: PartitionedContext[bytes], window: OneInputWindowContext[int]
    ) -> None: ...


class WithoutTrigger(OneInputWindowStreamProcessFunction[int, bytes]):
    def on_late_record(self, record: int, output: Collector[bytes], ctx: PartitionedContext[bytes]) -> None: ...


def windows(g: Given) -> None:
    g.keyed.window(TEN).process(g.one)  # E: call-overload
    g.keyed.window(10)  # E: arg-type
    g.keyed.window(TEN).process(Numbers)  # E: call-overload
    g.keyed.window(TEN).process(len)  # E: call-overload
    g.keyed.window(TEN).process(WithoutTrigger())  # E: abstract
    g.keyed.process(Numbers())  # E: call-overload
    g.non_keyed.window(TEN)  # E: arg-type
    g.broadcast.window(TEN)  # E: attr-defined
    g.other_keyed.window(TEN).process(Numbers())  # E: arg-type
    g.keyed.window(TEN).process(Match())  # E: call-overload
    g.other_keyed.window(TEN).connect_and_process(g.keyed, Match())  # E: arg-type, misc
    g.keyed.window(TEN).connect_and_process(g.other_global, Match())  # E: call-overload
    g.global_.window(TEN).process(Numbers(), g.key_of_bytes)  # E: call-overload
    g.keyed.window(TEN).process(Numbers()).process(g.one)  # E: arg-type
    g.keyed.window(TEN).with_trigger(CountTrigger(3))  # E: attr-defined
    g.keyed.window(TEN).map(str)  # E: attr-defined


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0  # E: return-value

    def add(self, value: int, accumulator: tuple[int, int]) -> int:  # E: override
        return accumulator[0] + value

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator  # E: return-value


def with_word(word: str, words: set[str]) -> set[str]:
    return words | {word}


def number_of(words: set[str]) -> int:
    return len(words)


def start(result: str, window: WindowContext, ctx: PartitionedContext[int]) -> int:
    return window.start_time


def folds(g: Given) -> None:
    windows = g.keyed.window(TEN)
    windows.aggregate(max)  # E: call-overload
    windows.aggregate(Mean(), start)  # E: arg-type
    windows.aggregate(Mean(), lambda mean, window: mean)  # E: arg-type, misc
    aggregate_of(list[str], with_word, number_of)  # E: misc
    windows.aggregate(Mean()).get_result((0, 0))  # E: attr-defined
    windows.reduce(abs)  # E: arg-type
    windows.reduce(with_word)  # E: arg-type
    g.other_keyed.window(TEN).aggregate(Mean())  # E: arg-type
    windows.aggregate(Mean()).to_sink(g.int_sink)  # E: arg-type


def late_records(g: Given) -> None:
    g.other_keyed.window(TEN).with_late_output(LATE)  # E: arg-type
    g.keyed.window(TEN).with_late_output("late")  # E: arg-type
    late = g.keyed.window(TEN).with_late_output(LATE).process(Numbers())
    late.side_output(LATE).to_sink(g.bytes_sink)  # E: arg-type
