"""Declared aggregates on columns and record by record have the same results, across snapshots and savepoints."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from operator import attrgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import narwhals as nw
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import (
    ApproxCountDistinct,
    ArgMax,
    ArgMin,
    Collect,
    Count,
    CountDistinct,
    Custom,
    First,
    Key,
    Last,
    Max,
    Mean,
    Min,
    StdDev,
    Sum,
    Variance,
    WindowEnd,
    WindowStart,
)
from dsv2.arrow.aggregates import RunningColumns, WindowColumns
from dsv2.errors import UserFunctionError
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.state import AggregateFunction
from dsv2.testing import ManualClock, Stop, TestSource
from tests.conformance.functions import Stamped
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
    flag: bool
    at: datetime | None
    on: date
    raw: bytes | None
    tags: list[int] | None


class Result(NamedTuple):
    """All aggregates."""

    user: str
    day: int
    events: int
    prices: int | None
    amount: int
    price: float | None
    mean: float
    mean_price: float | None
    least: float | None
    most: int
    text: str | None
    first: str | None
    last: str | None
    flag: bool
    earliest: datetime | None
    latest: date
    raw: bytes | None
    tags: list[int] | None
    texts: int
    numbers: int
    whole_numbers: int
    about: int
    collected: list[str] | None
    dearest: str | None
    earliest_text: str | None
    spread: float | None
    deviation: float | None
    chosen: int
    chosen_amount: int | None
    chosen_mean: float | None
    span: int | None


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
    mean: float
    mean_price: float | None
    least: float | None
    most: int
    text: str | None
    first: str | None
    last: str | None
    flag: bool
    earliest: datetime | None
    latest: date
    raw: bytes | None
    tags: list[int] | None
    texts: int
    numbers: int
    whole_numbers: int
    about: int
    collected: list[str] | None
    dearest: str | None
    earliest_text: str | None
    spread: float | None
    deviation: float | None
    chosen: int
    chosen_amount: int | None
    chosen_mean: float | None
    span: int | None


class Ends(NamedTuple):
    """The accumulator of ``Span``."""

    least: int | None
    most: int | None


class Span(AggregateFunction[int, Ends, int | None]):
    """The difference between the greatest and the least value."""

    def create_accumulator(self) -> Ends:
        return Ends(None, None)

    def add(self, value: int, accumulator: Ends) -> Ends:
        least, most = accumulator
        return Ends(value if least is None else min(least, value), value if most is None else max(most, value))

    def merge(self, first: Ends, second: Ends) -> Ends:
        for value in second:
            first = first if value is None else self.add(value, first)
        return first

    def get_result(self, accumulator: Ends) -> int | None:
        least, most = accumulator
        return None if least is None or most is None else most - least


PRICED = (nw.col("price") < 1) | nw.col("flag")
AGGREGATES: dict[str, Any] = {
    "user": Key(0), "day": Key(1), "events": Count(), "prices": Count("price"), "amount": Sum("amount"),
    "price": Sum("price"), "mean": Mean("amount"), "mean_price": Mean("price"), "least": Min("price"),
    "most": Max("amount"), "text": Max("text"), "first": First("text"), "last": Last("text"), "flag": Max("flag"),
    "earliest": Min("at"), "latest": Max("on"), "raw": Min("raw"), "tags": Last("tags"),
    "texts": CountDistinct("text"), "numbers": CountDistinct("price", filter=nw.col("flag")),
    "whole_numbers": CountDistinct("amount", filter=PRICED),
    "about": ApproxCountDistinct("price"), "collected": Collect("text", limit=3), "dearest": ArgMax("text", by="price"),
    "earliest_text": ArgMin("text", by="at"), "spread": Variance("price"),
    "deviation": StdDev("amount", population=True), "chosen": Count(filter=PRICED),
    "chosen_amount": Sum("amount", filter=PRICED), "chosen_mean": Mean("amount", filter=nw.col("day") == 1),
    "span": Custom("day", Span()),
}  # fmt: skip
BOUNDS: dict[str, Any] = {"start": WindowStart(), "end": WindowEnd()}

EVENTS = long_lists(
    st.builds(
        Event,
        st.sampled_from(["a", "b", "é"]),
        st.integers(0, 1),
        st.integers(0, 40),
        st.integers(-5, 5) | st.sampled_from([1 << 40, (1 << 55) + 1]),
        st.none() | st.floats(width=32) | st.sampled_from([0.1, 0.2, 1e30, 1e308, -0.0, math.nan]),
        st.none() | st.sampled_from(["x", "", "zz", "é", "e\u0301", "\0", "\uffff", "\U0001f600"]),
        st.booleans(),
        st.none() | st.datetimes().map(lambda at: at.replace(fold=0)) | st.sampled_from([datetime.min, datetime.max]),
        st.dates() | st.sampled_from([date.min, date.max]),
        st.none() | st.binary(max_size=2),
        st.none() | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=2),
    ),
    max_size=50,
)
STRATEGIES = {
    "running": None,
    "tumbling": WindowStrategy.tumbling(timedelta(milliseconds=10)),
    "sliding": WindowStrategy.sliding(timedelta(milliseconds=12), timedelta(milliseconds=5)),
    "cumulating": WindowStrategy.cumulate(timedelta(milliseconds=4), timedelta(milliseconds=12)),
    "with gaps": WindowStrategy.sliding(timedelta(milliseconds=3), timedelta(milliseconds=7)),
}


def key_of(event: Event) -> tuple[str, int]:
    return event.user, event.day


def run(
    events: list[Event], what: str, key: Callable[[Event], Any], stop: int | None, start: Path | None, batch: int
) -> tuple[list[Any], Any, Any]:
    """Return the results, the job, and the function."""
    items = events if stop is None else [*events[:stop], Stop(), *events[stop:]]
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock(), checks=False))
    sink = CollectSink[Any]()
    times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time")).per_event_watermark()
    generator = times.with_max_out_of_order_time(timedelta(milliseconds=4)).build_as_process_function()
    source: Any = env.from_source(TestSource[Any](items), "in").with_uid("in").with_parallelism(1)
    timed = source.process(generator).with_uid("times").with_parallelism(1)
    keyed, strategy = timed.key_by(key, version=1), STRATEGIES.get(what)
    if strategy is None:
        aggregated = keyed.mini_batch() if what == "mini-batches" else keyed
        found = aggregated.aggregate(Result, Event, **AGGREGATES)
    else:
        found = keyed.window(strategy).aggregate(WindowResult, Event, **{**AGGREGATES, **BOUNDS})
    function = found._node.body
    stamped = found.with_uid("f").with_parallelism(2).process(Stamped()).with_uid("stamps").with_parallelism(2)
    stamped.to_sink(sink).with_uid("out")
    job = env.execute_async("aggregates", savepoint=start)
    job.await_termination()
    return sink.results, job, function


def by_key(results: list[Any]) -> dict[Any, list[str]]:
    """The results of each key in order, as text, because NaN is not equal to itself."""
    found: dict[Any, list[str]] = {}
    for result, timestamp in results:
        place = result[:4] if isinstance(result, WindowResult) else result[:2]  # its key, and the bounds of a window
        plain = [0.0 if value == 0 and isinstance(value, float) else value for value in result]  # or -0.0
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


@examples(15)
@given(EVENTS, st.sampled_from([1, 3, 100]))
def test_mini_batches_have_the_last_results(events: list[Event], batch: int) -> None:
    of_columns, _, _ = run(events, "mini-batches", attrgetter("user", "day"), None, None, batch)
    of_records, _, _ = run(events, "running", key_of, None, None, batch)
    some, every = by_key(of_columns), by_key(of_records)
    assert {key: found[-1] for key, found in some.items()} == {key: found[-1] for key, found in every.items()}
    for key, found in some.items():
        following = iter(every[key])
        assert all(result in following for result in found)  # in this order
    assert batch > 1 or some == every


class Means(NamedTuple):
    """Means only."""

    user: str
    amount: float
    price: float | None


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
        amount = float(Fraction(sum(one.amount for one in own)) / len(own))
        found.append(Means(event.user, amount, None if total is None else total / len(prices)))
    return found


@examples(15)
@given(EVENTS, st.sampled_from([1, 7, 100]), st.booleans())
def test_means_are_those_of_plain_python(events: list[Event], batch: int, on_columns: bool) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock(), checks=False))
    sink, expected = CollectSink[Means](), model(events)
    keyed = env.from_collection(events).with_parallelism(1).key_by(attrgetter("user") if on_columns else user_of)
    means = keyed.aggregate(Means, Event, user=Key(), amount=Mean("amount"), price=Mean("price"))
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


@examples(15)
@given(st.lists(st.sampled_from([1 << 62, -(1 << 62), (1 << 63) - 1, -(1 << 63), 1, -1]), max_size=6), st.booleans())
def test_sums_never_exceed_64_bits(amounts: list[int], windowed: bool) -> None:
    found: list[list[int]] = []
    for key in (key_of, attrgetter("user", "day")):
        event = Event("a", 0, 1, 0, None, None, False, None, date.min, None, None)
        events = [event._replace(amount=amount) for amount in amounts]
        try:
            results, _, _ = run(events, "tumbling" if windowed else "running", key, None, None, 100)
        except UserFunctionError as error:
            assert "A sum exceeds 64 bits" in str(error)  # noqa: PT017 - either is right, if both forms do it
            found.append([])
        else:
            found.append([result.amount for result, _ in results])
    assert found[0] == found[1]
    total = sum(amounts)
    assert not found[0] or found[0][-1] == total


class Booking(NamedTuple):
    """A record with a decimal."""

    user: str
    cost: Decimal | None


class Balance(NamedTuple):
    """All aggregates of decimals."""

    user: str
    total: Decimal | None
    mean: float | None
    least: Decimal | None
    most: Decimal | None
    last: Decimal | None


DECIMALS = st.builds(
    lambda digits, exponent: Decimal(digits).scaleb(exponent, Context(prec=100)),
    st.integers(-(10**40), 10**40) | st.integers(-9, 9),
    st.integers(-200, 200),
)
SPECIAL = st.sampled_from([None, *map(Decimal, ("NaN", "sNaN", "Infinity", "-Infinity", "-0", "0E+5", "1.50"))])


def of_decimals(costs: list[Decimal | None]) -> Balance:
    """The aggregates in plain Python."""
    given = [cost for cost in costs if cost is not None]
    if not given:
        return Balance("a", None, None, None, None, None)
    nan = [cost for cost in given if cost.is_nan()]
    if nan:
        total = nan[0] if len(given) == 1 else Decimal("NaN")
        return Balance("a", total, math.nan, nan[0], nan[0], given[-1])
    least, most = min(given), max(given)
    infinite = {cost for cost in given if cost.is_infinite()}
    if infinite:
        total = infinite.pop() if len(infinite) == 1 else Decimal("NaN")
        return Balance("a", total, float(total), least, most, given[-1])
    exact, exponent = sum(map(Fraction, given), Fraction(0)), min(cost.as_tuple().exponent for cost in given)
    assert isinstance(exponent, int)
    total = Decimal(int(exact / Fraction(10) ** exponent)).scaleb(exponent, Context(prec=999))
    return Balance("a", total, float(exact / len(given)), least, most, given[-1])


@examples(30)
@given(st.lists(DECIMALS | SPECIAL, min_size=1, max_size=6), st.booleans())
def test_decimals_are_aggregated_exactly(costs: list[Decimal | None], by_field: bool) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(clock=ManualClock(), checks=False))
    sink = CollectSink[Balance]()
    bookings = env.from_collection([Booking("a", cost) for cost in costs]).with_parallelism(1)
    keyed = bookings.key_by(attrgetter("user") if by_field else lambda booking: booking.user)
    parts = {"mean": Mean("cost"), "least": Min("cost"), "most": Max("cost"), "last": Last("cost")}
    balance = keyed.aggregate(Balance, Booking, user=Key(), total=Sum("cost"), **parts)
    balance.with_parallelism(1).to_sink(sink)
    env.execute("balances")
    for number, found in enumerate(sink.results, start=1):
        expected = of_decimals(costs[:number])
        assert [str(found.mean), str(found.last)] == [str(expected.mean), str(expected.last)]
        assert same(found.total, expected.total)
        assert same(found.least, expected.least)
        assert same(found.most, expected.most)


def same(first: Decimal | None, second: Decimal | None) -> bool:
    if first is None or second is None or first.is_nan():
        return str(first) == str(second)
    return first == second and (
        first == 0 or first.as_tuple().exponent == second.as_tuple().exponent or first.is_infinite()
    )


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
        env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock(), checks=False))
        sink = CollectSink[Any]()
        times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time"))
        generator = times.with_max_out_of_order_time(timedelta(milliseconds=4)).build_as_process_function()
        # With several channels, the records that are late depend on how the channels interleave.
        timed = env.from_collection(events * 3).with_parallelism(1).process(generator).with_parallelism(1)
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
        sums.with_parallelism(2).process(Stamped()).to_sink(sink)
        assert ("  Combine " in str(env.explain())) is (key is not key_of and what in ("tumbling", "halves"))
        env.execute("combined")
        found.append(sorted(sink.results))
    assert found[0] == found[1]
