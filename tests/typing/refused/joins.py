"""Joins with wrong types."""

from __future__ import annotations

from datetime import date
from typing import NamedTuple

from dsv2 import Collector, RuntimeContext
from dsv2.extension.join import (
    JoinFunction,
    JoinMode,
    JoinType,
    Left,
    join,
)
from dsv2.extension.window import WindowStrategy
from dsv2.state import StateTtl
from tests.durations import ms
from tests.typing.given import Given


def every_pair(left: int, right: date, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


def left_alone(left: int, right: date | None, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


def late_number(record: int, output: Collector[bytes], ctx: RuntimeContext) -> None: ...


class Pair(JoinFunction[int, date, bytes]):
    def process_record(self, left: int, right: date, output: Collector[bytes], ctx: RuntimeContext) -> None:
        output.collect(left)  # E: arg-type
        print(ctx.state_manager)  # E: attr-defined
        print(ctx.watermark_manager)  # E: attr-defined


def a_join_function_takes_the_records_of_both_sides(g: Given) -> None:
    g.other_keyed.connect_and_process(g.keyed, join(every_pair))  # E: arg-type
    g.keyed.process(join(every_pair))  # E: call-overload
    g.keyed.connect_and_process(g.other_keyed, join(Pair())).to_sink(g.int_sink)  # E: arg-type


def a_join_function_must_expect_none(g: Given) -> None:
    join(every_pair, JoinMode.interval(ms(0), ms(5)), JoinType.LEFT)  # E: call-overload
    join(left_alone, JoinMode.window(WindowStrategy.tumbling(ms(5))), JoinType.FULL)  # E: call-overload
    join(every_pair, JoinMode.window(WindowStrategy.tumbling(ms(5))), JoinType.SEMI)  # E: call-overload


def a_join_function_gets_four_arguments(g: Given) -> None:
    join(lambda left, right: None)  # E: misc, arg-type


def bounds_are_times(g: Given) -> None:
    join(every_pair, JoinMode.interval("now", ms(5)))  # E: arg-type
    join(every_pair, JoinMode.interval(-5, 5))  # E: arg-type
    join(every_pair, JoinMode.interval(ms(-5), ms(5)), "left")  # E: call-overload


def a_type_is_known_where_it_is_written(join_type: JoinType) -> None:
    join(every_pair, JoinMode.interval(ms(0), ms(5)), join_type)  # E: call-overload
    join(every_pair, JoinMode.window(WindowStrategy.tumbling(ms(5))), "outer")  # E: call-overload


def late_records_are_those_of_their_side(g: Given) -> None:
    late_dates = join(every_pair, JoinMode.interval(ms(0), ms(5)), on_late_right=late_number)
    g.keyed.connect_and_process(g.other_keyed, late_dates)  # E: misc
    join(every_pair, JoinMode.window(WindowStrategy.tumbling(ms(5))), on_late_left=Pair())  # E: call-overload
    join(every_pair, JoinMode.window(10))  # E: arg-type


def a_life_is_long_as_declared() -> None:
    join(every_pair, JoinMode.unbounded(ttl=1000))  # E: arg-type
    join(every_pair, JoinMode.interval(ms(0), ms(5), ttl=StateTtl(ms(1000))))  # E: call-arg
    join(every_pair, JoinMode.unbounded(), on_late_left=late_number)  # E: call-overload
    join(every_pair, JoinMode.interval(ms(0), ms(5)), is_deletion=bool)  # E: call-overload
    join(every_pair, ms(5))  # E: call-overload


def is_long(text: str) -> bool:
    return len(text) > 7


def a_temporal_join_is_an_inner_or_a_left_one_of_rows_that_it_knows(g: Given) -> None:
    join(every_pair, JoinMode.temporal(), JoinType.LEFT)  # E: call-overload
    join(every_pair, JoinMode.temporal(), JoinType.RIGHT)  # E: call-overload
    join(every_pair, JoinMode.versioned(), JoinType.LEFT)  # E: call-overload
    wrong = join(every_pair, JoinMode.temporal(), is_deletion=is_long)
    g.keyed.connect_and_process(g.other_keyed, wrong)  # E: misc
    g.other_keyed.connect_and_process(g.keyed, join(every_pair, JoinMode.temporal()))  # E: arg-type


class Result(NamedTuple):
    number: int


def fields_of_a_result_are_fields_of_a_side(g: Given) -> None:
    join(Result, number="number")  # E: call-overload
    g.keyed.connect_and_process(g.other_keyed, join(Result, number=Left("number"))).to_sink(g.int_sink)  # E: arg-type
