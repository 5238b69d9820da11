"""Declared aggregates on columns and record by record have the same results, across snapshots and savepoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Count, First, Key, Last, Max, Mean, Min, Sum, WindowEnd, WindowStart
from dsv2.arrow.aggregates import RunningColumns, WindowColumns
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.functions import OneInputStreamProcessFunction
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.testing import ManualClock, Stop, TestSource
from tests.profiles import examples
from tests.strategies import long_lists


class Event(NamedTuple):
    """A record."""

    user: str
    day: int
    time: int
    amount: int
    price: float | None
    text: str | None
    cost: Decimal


class Result(NamedTuple):
    """All aggregates."""

    user: str
    day: int
    events: int
    prices: int | None
    amount: int
    price: float | None
    cost: Decimal
    mean: float
    mean_price: float | None
    mean_cost: float
    least: float | None
    most: int
    text: str | None
    first: str | None
    last: str | None


class WindowResult(NamedTuple):
    """The same for a window."""

    user: str
    day: int
    start: int
    end: int
    events: int
    prices: int | None
    amount: int
    price: float | None
    cost: Decimal
    mean: float
    mean_price: float | None
    mean_cost: float
    least: float | None
    most: int
    text: str | None
    first: str | None
    last: str | None


AGGREGATES: dict[str, Any] = {
    "user": Key(0),
    "day": Key(1),
    "events": Count(),
    "prices": Count("price"),
    "amount": Sum("amount"),
    "price": Sum("price"),
    "cost": Sum("cost"),
    "mean": Mean("amount"),
    "mean_price": Mean("price"),
    "mean_cost": Mean("cost"),
    "least": Min("price"),
    "most": Max("amount"),
    "text": Max("text"),
    "first": First("text"),
    "last": Last("text"),
}
BOUNDS: dict[str, Any] = {"start": WindowStart(), "end": WindowEnd()}

EVENTS = long_lists(
    st.builds(
        Event,
        st.sampled_from(["a", "b", "é"]),
        st.integers(0, 1),
        st.integers(0, 40),
        st.integers(-5, 5) | st.sampled_from([1 << 40, (1 << 55) + 1]),
        st.none() | st.floats(allow_infinity=False, width=32) | st.sampled_from([0.1, 0.2, 1e30, math.nan]),
        st.none() | st.sampled_from(["x", "y", "zz", "é"]),
        st.integers(0, 99).map(lambda cents: Decimal(cents) / 100),
    ),
    max_size=50,
)
STRATEGIES = {
    "running": None,
    "tumbling": WindowStrategy.tumbling(timedelta(milliseconds=10)),
    "sliding": WindowStrategy.sliding(timedelta(milliseconds=12), timedelta(milliseconds=5)),
    "with gaps": WindowStrategy.sliding(timedelta(milliseconds=3), timedelta(milliseconds=7)),
}


def key_of(event: Event) -> tuple[str, int]:
    return event.user, event.day


class Stamps(OneInputStreamProcessFunction[Any, tuple[Any, int | None]]):
    """Emits results with their timestamps."""

    def process_record(self, record: Any, output: Any, ctx: Any) -> None:
        output.collect((record, ctx.timestamp))


def run(
    events: list[Event], what: str, key: Callable[[Event], Any], stop: int | None, start: Path | None, batch: int
) -> tuple[list[Any], Any, Any]:
    """Return the results, the job, and the function."""
    items = events if stop is None else [*events[:stop], Stop(), *events[stop:]]
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock(), fast=True))
    sink = CollectSink[Any]()
    times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time")).per_event_watermark()
    generator = times.with_max_out_of_order_time(timedelta(milliseconds=4)).build_as_process_function()
    source: Any = env.from_source(TestSource[Any](items), "in").with_uid("in").with_parallelism(1)
    timed = source.process(generator).with_uid("times").with_parallelism(1)
    keyed, strategy = timed.key_by(key, version=1), STRATEGIES[what]
    if strategy is None:
        found = keyed.aggregate(Result, Event, **AGGREGATES)
    else:
        found = keyed.window(strategy).aggregate(WindowResult, Event, **{**AGGREGATES, **BOUNDS})
    function = found._node.body
    stamped = found.with_uid("f").with_parallelism(2).process(Stamps()).with_uid("stamps").with_parallelism(2)
    stamped.to_sink(sink).with_uid("out")
    job = env.execute_async("aggregates", savepoint=start)
    job.await_termination()
    return sink.results, job, function


def by_key(results: list[Any]) -> dict[Any, list[str]]:
    """The results of each key in order, as text, because NaN is not equal to itself."""
    found: dict[Any, list[str]] = {}
    for result, timestamp in results:
        place = (result.user, result.day) if isinstance(result, Result) else (result.user, result.day, result.start)
        plain = [value.normalize() if isinstance(value, Decimal) else value for value in result]
        plain = [0.0 if value == 0 and isinstance(value, float) else value for value in plain]  # or -0.0
        found.setdefault(place, []).append(repr((plain, timestamp)))
    return found


@examples(15)
@given(EVENTS, st.sampled_from(list(STRATEGIES)), st.sampled_from([1, 3, 100]))
def test_columns_have_the_results_of_single_records(events: list[Event], what: str, batch: int) -> None:
    of_columns, _, function = run(events, what, attrgetter("user", "day"), None, None, batch)
    assert isinstance(function, RunningColumns | WindowColumns)
    of_records, _, function = run(events, what, key_of, None, None, batch)
    assert not isinstance(function, RunningColumns | WindowColumns)
    assert by_key(of_columns) == by_key(of_records)


class Means(NamedTuple):
    """Means only."""

    user: str
    amount: float
    price: float | None
    cost: float


def model(events: list[Event]) -> list[Means]:
    """The running means, in plain Python."""
    found, of_user = [], dict[str, list[Event]]()
    for event in events:
        own = of_user.setdefault(event.user, [])
        own.append(event)
        prices = [one.price for one in own if one.price is not None]
        total = None
        for price in prices:
            total = price if total is None else total + price
        exact = [Fraction(sum(one.amount for one in own)), sum((Fraction(one.cost) for one in own), Fraction(0))]
        amount, cost = (float(number / len(own)) for number in exact)
        found.append(Means(event.user, amount, None if total is None else total / len(prices), cost))
    return found


@examples(15)
@given(EVENTS, st.sampled_from([1, 7, 100]), st.booleans())
def test_means_are_those_of_plain_python(events: list[Event], batch: int, on_columns: bool) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock(), fast=True))
    sink, expected = CollectSink[Means](), model(events)
    keyed = env.from_collection(events).with_parallelism(1).key_by(attrgetter("user") if on_columns else user_of)
    means = keyed.aggregate(Means, Event, user=Key(), amount=Mean("amount"), price=Mean("price"), cost=Mean("cost"))
    assert isinstance(means._node.body, RunningColumns) is on_columns
    means.with_parallelism(1).to_sink(sink)
    env.execute("means")
    assert [tuple(map(bits, mean)) for mean in sink.results] == [tuple(map(bits, mean)) for mean in expected]


def user_of(event: Event) -> str:
    return event.user


def bits(value: Any) -> Any:
    """Distinguishes -0.0, and not NaN from NaN."""
    return "nan" if value != value else value.hex() if isinstance(value, float) else value


@examples(5)
@given(EVENTS, st.sampled_from(list(STRATEGIES)), st.floats(0, 1), st.booleans())
def test_savepoint_continues_either_way(events: list[Event], what: str, share: float, columns_first: bool) -> None:
    expected, _, _ = run(events, what, key_of, None, None, 5)
    keys: list[Any] = [attrgetter("user", "day"), key_of]
    first, second = keys if columns_first else keys[::-1]
    stop = int(share * len(events))
    with TemporaryDirectory() as folder:
        found, job, _ = run(events, what, first, stop, None, 5)
        job.savepoint(Path(folder, "savepoint"))
        more, _, _ = run(events, what, second, None, Path(folder, "savepoint"), 5)
    assert by_key(found + more) == by_key(expected)


class Sums(NamedTuple):
    """Aggregates that are combined before the exchange."""

    end: int
    day: int
    user: str
    events: int
    prices: int
    amount: int
    mean: float
    least: int
    most: int


@examples(15)
@given(EVENTS, st.sampled_from(["tumbling", "sliding", "with gaps", "halves"]), st.sampled_from([1, 3, 100]))
def test_combining_before_the_exchange_changes_nothing(events: list[Event], what: str, batch: int) -> None:
    halves = WindowStrategy.sliding(
        timedelta(milliseconds=12), timedelta(milliseconds=6), offset=timedelta(milliseconds=1)
    )
    strategy = STRATEGIES.get(what) or halves
    found = []
    for key in (key_of, attrgetter("user", "day")):
        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock(), fast=True))
        sink = CollectSink[Any]()
        times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
        generator = times.with_max_out_of_order_time(timedelta(milliseconds=4)).build_as_process_function()
        timed = env.from_collection(events * 3).with_parallelism(2).process(generator).with_parallelism(2)
        sums = (
            timed.key_by(key)
            .window(strategy)
            .aggregate(
                Sums,
                Event,
                end=WindowEnd(),
                day=Key(1),
                user=Key(0),
                events=Count(),
                prices=Count("price"),
                amount=Sum("amount"),
                mean=Mean("amount"),
                least=Min("amount"),
                most=Max("amount"),
            )
        )
        sums.process(Stamps()).to_sink(sink)
        assert ("  Combine " in str(env.explain())) is (key is not key_of and what in ("tumbling", "halves"))
        env.execute("combined")
        found.append(sorted(sink.results))
    assert found[0] == found[1]
