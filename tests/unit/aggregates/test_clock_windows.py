"""Declared aggregates of windows in processing time, on columns and on single records."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, NamedTuple

import pytest

from dsv2.aggregates import Collect, Count, Key, Mean, WindowEnd, WindowStart
from dsv2.arrow.aggregates import ColumnAggregate
from dsv2.extension.window import TimeType, WindowStrategy
from dsv2.model import RecordBatch
from dsv2.sinks import CollectSink
from tests.conformance.functions import Stamped
from tests.durations import ms
from tests.support import ENDED, Driver, KeptEntries, Signal, local_environment, operator_named

CLOCK = TimeType.PROCESSING
WINDOWS = {
    "tumbling": WindowStrategy.tumbling(ms(50), CLOCK),
    "sliding": WindowStrategy.sliding(ms(40), ms(20), CLOCK),
    "gaps": WindowStrategy.sliding(ms(20), ms(30), CLOCK),
    "cumulating": WindowStrategy.cumulate(ms(20), ms(60), CLOCK),
}


class Sale(NamedTuple):
    product: int
    amount: int


class Total(NamedTuple):
    product: int
    start: int
    end: int
    sales: int
    mean: float
    amounts: list[int]


def product_of(sale: Sale) -> int:
    return sale.product


def driver(windows: str, on_columns: bool, entries: KeptEntries | None = None) -> Driver:
    env = local_environment()
    sales = env.from_collection(list[Sale](), "in").with_parallelism(2)
    keyed = sales.key_by(attrgetter("product") if on_columns else product_of)
    totals: Any = keyed.window(WINDOWS[windows]).aggregate(
        Total,
        Sale,
        product=Key(),
        start=WindowStart(),
        end=WindowEnd(),
        sales=Count(),
        mean=Mean("amount"),
        amounts=Collect("amount"),
    )
    totals = totals.with_uid("totals").with_parallelism(1).process(Stamped()).with_parallelism(1)
    totals.to_sink(CollectSink()).with_uid("out")
    plan = env.build_plan()
    assert isinstance(operator_named(plan, "totals").body, ColumnAggregate) is on_columns
    return Driver(plan, "totals", entries=entries).open()


def receive(to: Driver, now_ms: int, *amounts: int) -> None:
    """Receive sales of two products at a time."""
    to.pass_time(now_ms)
    to.subtask.receive(0, RecordBatch([Sale(amount % 2, amount) for amount in amounts]), [])
    to.subtask.flush()


def results(of: Driver) -> list[Any]:
    """The results so far: totals with their timestamps, in the order of the ends of windows."""
    return sorted(
        (one for one in of.sent_to("out") if not isinstance(one, Signal)), key=lambda one: (one[0].end, one[0])
    )


def ended(of: Driver) -> list[Any]:
    for channel in (0, 1):
        of.send(ENDED, channel=channel)
    return results(of)


@pytest.mark.parametrize("on_columns", [False, True])
def test_windows_fire_when_the_clock_reaches_their_end(on_columns: bool) -> None:
    one = driver("tumbling", on_columns)
    receive(one, 1_010, 4, 5, 6)
    receive(one, 1_048, 8)
    assert results(one) == []
    receive(one, 1_060, 10)
    first = [(Total(0, 1_000, 1_050, 3, 6.0, [4, 6, 8]), 1_049), (Total(1, 1_000, 1_050, 1, 5.0, [5]), 1_049)]
    assert results(one) == first
    assert ended(one) == [*first, (Total(0, 1_050, 1_100, 1, 10.0, [10]), 1_099)]


@pytest.mark.parametrize("windows", WINDOWS)
def test_columns_have_the_windows_of_records(windows: str) -> None:
    both = [driver(windows, on_columns) for on_columns in (False, True)]
    found = []
    for one in both:
        of_one = []
        for number in range(30):
            receive(one, 1_000 + number * number % 13 + 7 * number, *range(number, number + number % 4))
            if number == 17:
                one.restart()
            of_one.append(results(one))
        found.append([*of_one, ended(one)])
    rows, columns = found
    assert len(rows[-1]) > 10
    assert columns == rows


@pytest.mark.parametrize("in_entries", [False, True])
@pytest.mark.parametrize("forms", [(True, True), (True, False), (False, True)], ids=str)
def test_windows_continue_from_a_savepoint(forms: tuple[bool, bool], in_entries: bool) -> None:
    first, second = (driver("tumbling", form, KeptEntries() if in_entries else None) for form in forms)
    receive(first, 1_010, 4, 5)
    second.restart_from(first.rows())
    receive(second, 1_030, 6)
    second.pass_time(1_049)
    assert [(total.amounts, time) for total, time in results(second)] == [([4, 6], 1_049), ([5], 1_049)]
