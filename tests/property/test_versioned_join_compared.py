"""The versioned join compared with a slow one, event by event, and with DuckDB's ``ASOF JOIN``."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Literal, NamedTuple

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv2 import ExecutionEnvironment
from dsv2.extension.event_time import EventTimeExtension
from dsv2.extension.join import JoinMode, JoinType, join
from dsv2.local import LocalRuntime
from dsv2.sinks import CollectSink
from dsv2.state import StateTtl
from dsv2.testing import ManualClock
from tests.durations import ms
from tests.oracles.joins import Joined, Row, SlowVersionedJoin
from tests.profiles import examples
from tests.property.joining import HISTORIES, Event, JoinDriver, Wait, joined_columns, pair

any_join: Any = join  # each of its overloads accepts one type
either_type = pytest.mark.parametrize("join_type", ["inner", "left"])
Kind = Literal["inner", "left"]


def is_deletion(row: Row) -> bool:
    """Every fourth right row deletes."""
    return row.number % 4 == 3


def as_expected(side: int, row: Row) -> Row:
    """The row as the slow join knows it: a negative number deletes."""
    return row._replace(number=-1 - row.number) if side and is_deletion(row) else row


def late(row: Row, output: Any, ctx: Any) -> None:
    """Emits a late row."""
    output.collect(("late", row))


@pytest.mark.parametrize("lifetime", [None, 10])
@either_type
@examples(15)
@given(history=HISTORIES)
def test_it_matches_the_slow_one(join_type: Kind, lifetime: int | None, history: list[Event]) -> None:
    ttl = None if lifetime is None else StateTtl(ms(lifetime))
    mode = JoinMode.versioned(ttl)
    driver = JoinDriver(any_join(pair, mode, join_type, is_deletion=is_deletion, on_late_left=late, on_late_right=late))
    slow = SlowVersionedJoin(join_type, lifetime)
    for event in history:
        before = len(slow.late)
        results = driver.take(event)
        if isinstance(event.element, Row):
            slow.take(event.side, as_expected(event.side, event.element))
        elif isinstance(event.element, Wait):
            slow.wait(event.element.ms)
        expected: list[Joined] = slow.move_to(driver.event_time)
        assert by_key(results) == by_key(expected)
        assert [as_expected(event.side, row[1]) for row, *_ in results if row[0] == "late"] == [
            row for _, row in slow.late[before:]
        ]
        assert all(timestamp > forwarded for row, timestamp, forwarded in results if row[0] != "late")
    assert driver.harness.ended
    assert driver.counter("late_records_dropped") == 0


@either_type
@examples(15)
@given(history=HISTORIES)
def test_columns_match_the_slow_one(join_type: Kind, history: list[Event]) -> None:
    driver = JoinDriver(joined_columns(JoinMode.versioned(), JoinType(join_type)))
    slow = SlowVersionedJoin(join_type)
    for event in history:
        results = driver.take(event)
        if isinstance(event.element, Row):
            slow.take(event.side, event.element)
        assert by_key(results) == by_key(slow.move_to(driver.event_time))
        assert all(timestamp > forwarded for _, timestamp, forwarded in results)
    assert driver.harness.ended
    assert driver.counter("late_records_dropped") == len(slow.late)


def by_key(results: list[Any]) -> dict[str, list[Any]]:
    """The results of each key in order."""
    kept: dict[str, list[Any]] = {}
    for row, timestamp, *_ in results:
        if row[0] != "late":
            kept.setdefault(row[0].key, []).append((row, timestamp))
    return kept


class Sale(NamedTuple):
    """A record with the price of its article."""

    article: str
    number: int
    time: int


class Price(NamedTuple):
    """A version. Without a price, the article is not sold."""

    article: str
    time: int
    cents: int | None


class Priced(NamedTuple):
    """A sale with the price of its time."""

    number: int
    cents: int | None


def priced(sale: Sale, price: Price | None, output: Any, ctx: Any) -> None:
    """The join function."""
    output.collect((sale.number, None if price is None else price.cents))


def is_gone(price: Price) -> bool:
    """True if the article is no longer sold."""
    return price.cents is None


time_of = attrgetter("time")
ARTICLES, TIMES = st.sampled_from("ab"), st.integers(0, 30)
SALES = st.lists(st.tuples(ARTICLES, TIMES), min_size=1, max_size=20).map(
    lambda sales: [Sale(article, number, time) for number, (article, time) in enumerate(sales)]
)
PRICES = st.lists(
    st.builds(Price, ARTICLES, TIMES, st.none() | st.integers(1, 99)),
    min_size=1,
    max_size=20,
    unique_by=lambda price: price[:2],
)
"""Versions at different times: SQL does not say which of two at the same time is valid."""


def timed(stream: Any) -> Any:
    """Event time follows each record. None is late, because they are in order."""
    builder = EventTimeExtension.new_watermark_generator_builder(time_of)
    return stream.process(builder.per_event_watermark().build_as_process_function())


@either_type
@examples(15)
@given(sales=SALES, prices=PRICES, batch=st.sampled_from([1, 3, 100]), declared=st.booleans())
def test_it_matches_the_asof_join_of_duckdb(
    join_type: Kind, sales: list[Sale], prices: list[Price], batch: int, declared: bool
) -> None:
    env = ExecutionEnvironment.get_instance(LocalRuntime(batches=[batch], clock=ManualClock(), checks=False))
    results = CollectSink[Any]()
    left, right = (
        timed(env.from_collection(sorted(records, key=time_of))).key_by(attrgetter("article"))
        for records in (sales, prices)
    )
    if declared:
        function = any_join(Priced, JoinMode.versioned(), join_type, left_records=Sale, right_records=Price)
    else:
        function = any_join(priced, JoinMode.versioned(), join_type, is_deletion=is_gone)
    left.connect_and_process(right, function).to_sink(results)
    assert "record by record" not in str(env.explain())
    env.execute("priced")

    connection = duckdb.connect()
    for name, records in (("sales", sales), ("prices", prices)):
        schema = pa.schema([(field, pa.string() if field == "article" else pa.int64()) for field in records[0]._fields])
        connection.register(name, pa.Table.from_pylist([record._asdict() for record in records], schema))
    expected = connection.execute(
        f"SELECT number, cents FROM sales ASOF {join_type} JOIN prices USING (article, time)"
    ).fetchall()
    if join_type == "inner" and not declared:  # a deletion is no partner
        expected = [found for found in expected if found[1] is not None]
    assert sorted(results.results) == sorted(expected)
