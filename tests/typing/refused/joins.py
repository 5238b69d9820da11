"""Joins that do not fit."""

from __future__ import annotations

from datetime import date

from dsv2 import Collector, RuntimeContext
from dsv2.extension.join import JoinType, interval_join, join, join_keyed, window_join
from dsv2.extension.window import WindowStrategy
from tests.typing.given import Given


def every_pair(left: int, right: date, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


def left_alone(left: int, right: date | None, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


def a_join_function_takes_the_records_of_both_sides(g: Given) -> None:
    g.other_keyed.connect_and_process(g.keyed, join(every_pair))  # E: arg-type
    join_keyed(g.keyed, g.keyed_by_date, every_pair)  # E: misc


def a_join_function_must_expect_none(g: Given) -> None:
    interval_join(every_pair, 0, 5, JoinType.LEFT)  # E: call-overload
    window_join(WindowStrategy.tumbling(5), left_alone, JoinType.FULL)  # E: call-overload
    window_join(WindowStrategy.tumbling(5), every_pair, JoinType.SEMI)  # E: call-overload


def a_join_function_gets_four_arguments(g: Given) -> None:
    join(lambda left, right: None)  # E: misc, arg-type


def bounds_are_times(g: Given) -> None:
    interval_join(every_pair, "now", 5)  # E: call-overload
