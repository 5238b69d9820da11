"""Windows that fold their records incrementally, and a separate output for late records."""

from __future__ import annotations

from typing import Any

import pytest

from dsv2 import OutputTag
from dsv2.errors import PlanError, UserFunctionError
from dsv2.extension.window import (
    OneInputWindowStreamProcessFunction,
    TwoOutputWindowStreamProcessFunction,
    WindowStrategy,
)
from dsv2.extension.window.process_functions import aggregated, reduced, windowed
from dsv2.state import aggregate_of
from tests.durations import ms
from tests.windows import WindowDriver

TEN = WindowStrategy.tumbling(ms(10))
LATE = OutputTag("late", str)


class TestAggregate:
    """Flink's DataStream V2 keeps all records."""

    def test_records_are_not_kept(self) -> None:
        driver = WindowDriver(aggregated(TEN, aggregate_of(lambda: 0, one_more, str))).record("a1", 3)
        before = len(driver.state())
        for _ in range(1000):
            driver.record("a" + "x" * 100, 3)
        assert len(driver.state()) < before + 20  # counters have more digits

    def test_sessions_require_merge(self) -> None:
        count = aggregate_of(lambda: 0, one_more, str)
        with pytest.raises(PlanError, match="the function cannot merge accumulators"):
            aggregated(WindowStrategy.session(ms(10)), count)

    def test_failing_function_is_named(self) -> None:
        driver = WindowDriver(aggregated(TEN, aggregate_of(lambda: 0, lambda record, n: n + 1 // (1 - n), str)))
        driver.record("a1", 3)
        with pytest.raises(UserFunctionError) as caught:
            driver.record("a2", 3)
        assert (caught.value.callback, caught.value.key, caught.value.record) == ("add", "'a'", "'a2'")

    @pytest.mark.parametrize(
        "strategy",
        [WindowStrategy.sliding(ms(10), ms(5)), WindowStrategy.count(3), WindowStrategy.global_()],
        ids=lambda strategy: strategy.layout,
    )
    def test_failing_function_is_named_in_every_strategy(self, strategy: WindowStrategy) -> None:
        driver = WindowDriver(aggregated(strategy, aggregate_of(lambda: 0, lambda record, n: n + 1 // (1 - n), str)))
        driver.record("a1", 3)
        with pytest.raises(UserFunctionError) as caught:
            driver.record("a2", 3)
        assert (caught.value.callback, caught.value.key, caught.value.record) == ("add", "'a'", "'a2'")

    def test_failing_result_is_named(self) -> None:
        driver = WindowDriver(aggregated(TEN, aggregate_of(lambda: 0, one_more, lambda number: 1 // (number - 2))))
        driver.record("a1", 3).record("b1", 3).record("b2", 3).record("c1", 3)
        with pytest.raises(UserFunctionError) as caught:
            driver.event_time(9)
        assert (caught.value.callback, caught.value.key) == ("get_result", "'b'")


def one_more(record: str, number: int) -> int:
    return number + 1


def second_of(first: str | None, second: str | None) -> str | None:
    return second


class TestReduce:
    def test_records_may_be_none(self) -> None:
        function = reduced(WindowStrategy.count(3), second_of)
        assert WindowDriver(function, key=lambda record: 0).record(None).record(None).record(None).out() == [None]


class TestLateOutput:
    """Flink's DataStream V2 has no late output."""

    def test_window_function_visits_all_partitions(self) -> None:
        class Seeing(OneInputWindowStreamProcessFunction[str, Any]):
            def on_trigger(self, output: Any, ctx: Any, window: Any) -> None:
                every: list[Any] = []
                ctx.non_partitioned_context.apply_to_all_partitions(
                    lambda out, partition: every.append(partition.state_manager.current_key)
                )
                output.collect((ctx.task_info.parallelism, every, window.get_all_records()))

            def end_input(self, ctx: Any) -> None:
                ctx.apply_to_all_partitions(lambda out, partition: out.collect("not reached: no key is left"))

        driver = WindowDriver(windowed(TEN, Seeing(), late_tags=(LATE,))).record("a1", 3).record("b1", 3).end()
        assert driver.out() == [(1, ["a", "b"], ["a1"]), (1, ["b"], ["b1"])]

    def test_two_output_function_handles_late_records_itself(self) -> None:
        class Apart(TwoOutputWindowStreamProcessFunction[str, str, str]):
            def on_trigger(self, first_output: Any, second_output: Any, ctx: Any, window: Any) -> None:
                for record in window.get_all_records():
                    (first_output if int(record[1]) % 2 else second_output).collect(record)

            def on_late_record(self, record: str, first_output: Any, second_output: Any, ctx: Any) -> None:
                second_output.collect(f"late {record}")

            def on_clear(self, first_output: Any, second_output: Any, ctx: Any, window: Any) -> None:
                first_output.collect(f"[{window.start_time}, {window.end_time})")

        driver = WindowDriver(windowed(TEN, Apart())).record("a1", 3).record("a2", 4).event_time(9).record("a4", 1)
        assert driver.stamped() == [("a1", 9), ("[0, 10)", 9)]
        assert driver.stamped("second") == [("a2", 9), ("late a4", 1)]
