"""Operators on the order of records compared with SQL over the same records, run by DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.aggregates import Count, First, Key, Lag, Last, Lead, Max, Mean, Min, Sum
from dsv2.arrow import schema_of
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.window import WindowStrategy
from dsv2.local import LocalRuntime
from dsv2.model import Change, ChangeKind
from dsv2.sinks import CollectSink
from dsv2.testing import ManualClock
from tests.profiles import examples
from tests.strategies import long_lists


class Event(NamedTuple):
    """A record. Its number is the order of arrival."""

    number: int
    user: str
    part: int
    time: int
    price: float | None
    text: str


class Top(NamedTuple):
    """A record with its rank in a window."""

    number: int
    start: int
    rank: int


ROWS = st.tuples(
    st.sampled_from("ab"),
    st.integers(0, 1),
    st.integers(0, 40),
    st.none() | st.integers(-2, 2).map(float) | st.sampled_from([float("nan"), float("inf"), -0.0]),
    st.text("aé\U0001f600", max_size=2),
)
EVENTS = long_lists(ROWS, max_size=40).map(lambda rows: [Event(number, *row) for number, row in enumerate(rows)])
Order = tuple[str | list[str] | None, bool | list[bool]]
"""The fields, and whether they descend."""
ORDERS: st.SearchStrategy[Order] = st.tuples(st.sampled_from([None, "time", "price", "text"]), st.booleans()) | (
    st.tuples(st.sampled_from([["price", "time"], ["text", "price"]]), st.lists(st.booleans(), min_size=2, max_size=2))
)
TIES = st.sampled_from(["row_number", "rank", "dense_rank"])
BATCHES = st.sampled_from([1, 3, 100])


def run(events: list[Event], batch: int, apply: Callable[[Any], Any], *, in_order: bool = False) -> list[Any]:
    """``apply`` gets the records by user and part. ``in_order``: event time advances with each of them."""
    if in_order:
        events = sorted(events, key=attrgetter("time"))
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock(), checks=False))
    sink = CollectSink[Any]()
    slack = timedelta(milliseconds=0 if in_order else 40)
    times = EventTimeExtension.new_watermark_generator_builder(attrgetter("time")).with_max_out_of_order_time(slack)
    times = times.per_event_watermark() if in_order else times
    source: Any = env.from_collection(events)
    keyed = source.process(times.build_as_process_function()).key_by(attrgetter("user", "part"))
    apply(keyed).to_sink(sink)
    env.execute()
    return sink.results


def sql(query: str, events: list[Event]) -> list[tuple[Any, ...]]:
    table = pa.table(list(zip(*events, strict=True)), schema_of(Event))
    return duckdb.connect().register("events", table).execute(query).fetchall()


def fields_of(order: Order) -> list[tuple[str, bool]]:
    by, descending = order
    names = by if isinstance(by, list) else [by or "time"]
    return list(zip(names, descending if isinstance(descending, list) else [descending], strict=True))


def sql_order(order: Order, *, backwards: bool = False) -> str:
    """The order in SQL, without that of equal records."""
    directions = ("ASC NULLS FIRST", "DESC NULLS LAST")
    return ", ".join(f"{name} {directions[descending != backwards]}" for name, descending in fields_of(order))


@examples(15)
@given(EVENTS.filter(bool), ORDERS, st.booleans(), BATCHES)
def test_first_and_last(events: list[Event], order: Order, is_last: bool, batch: int) -> None:
    (by, descending), found = order, dict[tuple[str, int], Event]()

    def apply(keyed: Any) -> Any:
        return (keyed.last if is_last else keyed.first)(by, Event, descending=descending)

    emitted = run(events, batch, apply)
    for event in emitted:
        found[event.user, event.part] = event
    ordered = f"{sql_order(order, backwards=is_last)}, number {'DESC' if is_last else ''}"
    expected = sql(
        f"SELECT number FROM events QUALIFY row_number() OVER (PARTITION BY user, part ORDER BY {ordered}) = 1", events
    )
    assert sorted(event.number for event in found.values()) == sorted(number for (number,) in expected)
    numbers = [event.number for event in emitted]
    assert len(set(numbers)) == len(numbers)
    for count in range(1, len(events)):  # each record is emitted if it is the one so far
        assert (events[count - 1].number in numbers) == is_best(events[:count], order, is_last)


@examples(15)
@given(EVENTS.filter(bool), ORDERS, st.booleans(), BATCHES)
def test_first_and_last_until_a_time(events: list[Event], order: Order, is_last: bool, batch: int) -> None:
    """Event time reaches no number before the end."""
    by, descending = order
    found = run(
        events, batch, lambda keyed: (keyed.last if is_last else keyed.first)(by, descending=descending, until="number")
    )
    ordered = f"{sql_order(order, backwards=is_last)}, number {'DESC' if is_last else ''}"
    expected = sql(
        f"SELECT number FROM events QUALIFY row_number() OVER (PARTITION BY user, part ORDER BY {ordered}) = 1", events
    )
    assert [event.number for event in found] == sorted(number for (number,) in expected)


def is_best(events: list[Event], order: Order, is_last: bool) -> bool:
    """Return whether the last of ``events`` is the first or last one of its key."""
    *before, event = (one for one in events if (one.user, one.part) == (events[-1].user, events[-1].part))
    compared = [comparison(event, one, order) for one in before]
    return all(one >= 0 for one in compared) if is_last else all(one < 0 for one in compared)


def comparison(event: Event, other: Event, order: Order) -> int:
    """Return -1, 0 or 1 if ``event`` comes before ``other``, is equal to it, or comes after it."""
    for name, descending in fields_of(order):
        own, others = value_of(event, name), value_of(other, name)
        if own != others:
            return -1 if (own < others) != descending else 1
    return 0


def value_of(event: Event, by: str) -> tuple[int, Any]:
    value = getattr(event, by)
    return (0, 0) if value is None else (2, 0) if value != value else (1, value)


@examples(20)
@given(EVENTS.filter(bool), ORDERS, TIES, st.integers(1, 3), BATCHES)
def test_top_n_of_windows(events: list[Event], order: Order, ties: Any, n: int, batch: int) -> None:
    windows, (by, descending) = WindowStrategy.tumbling(timedelta(milliseconds=10)), order
    found = run(
        events,
        batch,
        lambda keyed: keyed.window(windows).top_n(
            n, Top, by=by, descending=descending, ties=ties, rank="rank", start="start"
        ),
    )
    ordered = sql_order(order) + (", number" if ties == "row_number" else "")
    expected = sql(
        f"SELECT number, time // 10 * 10 AS start, {ties}() OVER (PARTITION BY user, part, start ORDER BY {ordered}) "
        f"AS rank FROM events QUALIFY rank <= {n}",
        events,
    )
    assert sorted(map(tuple, found)) == sorted(expected)
    starts = [top.start for top in found]
    assert starts == sorted(starts)


class Over(NamedTuple):
    """A record with aggregates of the last ones."""

    number: int
    text: str
    of: str
    records: int
    prices: int
    least: float | None
    most: float | None
    sum: float | None
    mean: float | None
    total: int
    first: str
    last: float | None


OVER: dict[str, Any] = {
    "of": Key(0), "records": Count(), "prices": Count("price"), "least": Min("price"), "most": Max("price"),
    "sum": Sum("price"), "mean": Mean("price"), "total": Sum("time"), "first": First("text"), "last": Last("price"),
}  # fmt: skip


def plain(events: list[Event]) -> list[Event]:
    """Events without NaN, infinity and -0.0, which DuckDB aggregates in another way."""
    return [one if one.price in (-2.0, -1.0, 1.0, 2.0) else one._replace(price=None) for one in events]


@examples(20)
@given(EVENTS.filter(bool).map(plain), st.integers(1, 4) | st.none(), st.integers(0, 12), BATCHES, st.booleans())
def test_over(events: list[Event], rows: int | None, span: int, batch: int, in_order: bool) -> None:
    """``rows``: None for a range of ``span`` ms."""
    duration = timedelta(milliseconds=span) if rows is None else None
    over = {"rows": rows, "range": duration}
    found = run(events, batch, lambda keyed: keyed.over(**over).aggregate(Over, Event, **OVER), in_order=in_order)
    frame = f"RANGE BETWEEN {span} PRECEDING AND CURRENT ROW" if rows is None else f"ROWS {rows - 1} PRECEDING"
    order = "time" if rows is None else "time, number"
    expected = sql(
        "SELECT number, text, user, count(*) OVER o, count(price) OVER o, min(price) OVER o, max(price) OVER o, "
        "sum(price) OVER o, avg(price) OVER o, CAST(sum(time) OVER o AS BIGINT), "
        "first_value(text ORDER BY time, number) OVER o, last_value(price ORDER BY time, number IGNORE NULLS) OVER o "
        f"FROM events WINDOW o AS (PARTITION BY user, part ORDER BY {order} {frame})",
        events,
    )
    assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, expected))
    times = {event.number: event.time for event in events}
    assert [times[one.number] for one in found] == sorted(times.values())


class Near(NamedTuple):
    """A record with values of those before and after."""

    number: int
    before: float | None
    after: str | None
    records: int


@examples(20)
@given(
    EVENTS.filter(bool).map(plain),
    st.integers(1, 3) | st.none(),
    st.integers(0, 12),
    st.integers(1, 3),
    st.integers(0, 4),
    BATCHES,
    st.booleans(),
)
def test_lag_and_lead(
    events: list[Event], rows: int | None, span: int, lag: int, lead: int, batch: int, in_order: bool
) -> None:
    """``rows``: None for a range of ``span`` ms. ``lead``: 0 for none."""
    parts: dict[str, Any] = {"before": Lag("price", lag), "after": Lead("text", lead or 1), "records": Count()}
    if not lead:
        parts["after"] = Lag("text")
    duration = timedelta(milliseconds=span) if rows is None else None
    over = {"rows": rows, "range": duration}
    found = run(events, batch, lambda keyed: keyed.over(**over).aggregate(Near, Event, **parts), in_order=in_order)
    frame = f"time RANGE BETWEEN {span} PRECEDING AND CURRENT ROW"
    if rows is not None:
        frame = f"time, number ROWS {rows - 1} PRECEDING"
    expected = sql(
        f"SELECT number, lag(price, {lag}) OVER o, {f'lead(text, {lead})' if lead else 'lag(text)'} OVER o, "
        f"count(*) OVER (PARTITION BY user, part ORDER BY {frame}) "
        "FROM events WINDOW o AS (PARTITION BY user, part ORDER BY time, number)",
        events,
    )
    assert sorted(map(repr, map(tuple, found))) == sorted(map(repr, expected))


class Ranked(NamedTuple):
    """A version of a rank."""

    number: int
    user: str
    part: int
    rank: int
    change: str


@examples(20)
@given(EVENTS.filter(bool), ORDERS, TIES, st.integers(1, 3), st.booleans(), BATCHES)
def test_changes_of_the_first(events: list[Event], order: Order, ties: Any, n: int, has_rank: bool, batch: int) -> None:
    by, descending = order
    has_rank = has_rank and ties == "row_number"
    ordered = sql_order(order) + (", number" if ties == "row_number" else "")
    expected = sql(
        f"SELECT number, {ties}() OVER (PARTITION BY user, part ORDER BY {ordered}) AS rank FROM events "
        f"QUALIFY rank <= {n}",
        events,
    )
    if has_rank:
        versions: dict[tuple[str, int, int], int] = {}
        kinds: list[str] = []
        for one in run(
            events,
            batch,
            lambda keyed: keyed.top_n(n, Ranked, by=by, descending=descending, rank="rank", change="change"),
        ):
            place = one.user, one.part, one.rank
            kinds.append(one.change)
            match one.change:
                case "+I":
                    assert place not in versions
                    versions[place] = one.number
                case "-U":
                    assert versions[place] == one.number
                case "+U":
                    assert versions[place] != one.number
                    versions[place] = one.number
        assert [kinds[place + 1] for place, kind in enumerate(kinds) if kind == "-U"] == ["+U"] * kinds.count("+U")
        assert sorted((number, rank) for (_, _, rank), number in versions.items()) == sorted(expected)
        return
    found: set[int] = set()
    changes: list[Change[Event]] = run(
        events, batch, lambda keyed: keyed.top_n(n, by=by, descending=descending, ties=ties)
    )
    for change in changes:
        if change.kind is ChangeKind.INSERT:
            assert change.record.number not in found
            found.add(change.record.number)
        else:
            assert change.kind is ChangeKind.DELETE
            found.remove(change.record.number)
    assert sorted(found) == sorted(number for number, _ in expected)
