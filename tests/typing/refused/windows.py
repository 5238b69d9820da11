"""Invalid windows, and functions that do not match them."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from dsv2 import Collector, OutputTag, PartitionedContext
from dsv2.extension.window import (
    OneInputWindowContext,
    OneInputWindowStreamProcessFunction,
    TwoInputNonBroadcastWindowStreamProcessFunction,
    TwoInputWindowContext,
    WindowContext,
    WindowStrategy,
    aggregate,
    reduce,
    window,
    with_late_output,
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
    WindowStrategy.session(timedelta(minutes=10), allowed_lateness=5)  # E: call-arg
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
        window.get_window_state("count")  # E: call-overload
        window.get_window_state(RULES)  # E: call-overload
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
    window(TEN, g.one)  # E: call-overload
    window(10, Numbers())  # E: call-overload
    window(TEN, Numbers)  # E: call-overload
    window(TEN, len)  # E: call-overload
    window(TEN, WithoutTrigger())  # E: abstract
    g.keyed.process(Numbers())  # E: call-overload
    g.other_keyed.process(window(TEN, Numbers()))  # E: arg-type
    g.keyed.process(window(TEN, Match()))  # E: call-overload
    g.other_keyed.connect_and_process(g.keyed, window(TEN, Match()))  # E: arg-type, misc
    g.keyed.process(window(TEN, Numbers())).process(g.one)  # E: arg-type


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
    aggregate(TEN, Mean)  # E: call-overload
    aggregate(TEN, max)  # E: call-overload
    aggregate(TEN, Mean(), start)  # E: arg-type
    aggregate(TEN, Mean(), lambda mean, window: mean)  # E: arg-type, misc
    aggregate_of(list[str], with_word, number_of)  # E: misc
    aggregate(TEN, Mean()).get_result((0, 0))  # E: attr-defined
    reduce(TEN, abs)  # E: arg-type
    reduce(TEN, with_word)  # E: misc
    g.other_keyed.process(aggregate(TEN, Mean()))  # E: arg-type
    g.keyed.process(aggregate(TEN, Mean())).to_sink(g.int_sink)  # E: arg-type


def late_records(g: Given) -> None:
    with_late_output(window(TEN, Match()), LATE)  # E: call-overload
    with_late_output(Numbers(), LATE)  # E: call-overload
    with_late_output(TEN, LATE)  # E: call-overload
    late = g.keyed.process(with_late_output(window(TEN, Numbers()), LATE))
    late.side_output(LATE).to_sink(g.bytes_sink)  # E: arg-type
